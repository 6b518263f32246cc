"""Secret integers, drawn exactly from the distribution that is charged for."""
