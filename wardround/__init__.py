"""The library and the door: `import wardround` is the analyst's client."""
