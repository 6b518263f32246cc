"""Generated from the .proto files by `python -m protos.generate`; never edited by hand."""
