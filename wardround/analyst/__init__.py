"""The analyst's role: asks, and reads estimates."""
