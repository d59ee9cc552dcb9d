"""How other libraries call `tirx_attn.flash_attention`; each module needs the library of its name."""
