"""Which plans could answer a question, what each costs, and how good it would be."""
