"""The fixtures' values, their quantities, and the assert_* functions."""
