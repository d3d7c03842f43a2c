"""Built-in recipes: functions that return a full configuration, to run or to change."""

from swiftfl.recipes.builtin import RECIPES, digits, recipe

__all__ = ["RECIPES", "digits", "recipe"]
