"""The commands of `tirx-attn`, one file each; cli.py puts them together."""
