"""The query, the cohort and the answer: the words that an analyst sends and gets."""
