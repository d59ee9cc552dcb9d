"""`python -m tirx_attn` is the command `tirx-attn`."""

from tirx_attn.cli import main

main()
