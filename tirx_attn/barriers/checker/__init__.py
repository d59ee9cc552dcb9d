"""Parts of the structural check: reading TIR, translating it, playing it, explaining what went wrong."""
