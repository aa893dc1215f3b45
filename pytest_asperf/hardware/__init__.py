"""This machine, the published facts about its chip, and whether it is fit to measure on."""
