"""What a test holds and claims: the fixtures' values and the assert_* functions."""
