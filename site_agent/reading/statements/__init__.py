"""From a question to SQL: statements as trees, whatever database they are for."""
