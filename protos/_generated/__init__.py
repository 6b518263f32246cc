"""Generated from the .proto files by `python -m tools.generate_protos`; never edited by hand."""
