"""Ask, plan, dispatch, collect, settle, combine."""
