"""The paper's experiments, reproduced: recipes, hardware, predictions, convergence and the report."""
