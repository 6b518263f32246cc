"""From a typed question to its layout, its plan and its price, and the task that carries it."""
