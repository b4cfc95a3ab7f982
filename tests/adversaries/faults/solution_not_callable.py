"""`solution` is a number."""
# problem: 1
# ranks: 2
# plan: quick
# expect: load_error
# platform: cpu

solution = 5
