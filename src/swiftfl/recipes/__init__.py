"""Built-in recipes: functions that return a full configuration, to run or to change."""

from swiftfl.recipes.builtin import RECIPES, cifar10, digits, fashion, recipe, synthetic

__all__ = ["RECIPES", "cifar10", "digits", "fashion", "recipe", "synthetic"]
