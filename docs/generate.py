GENERATED = ("reference/cli.md", "reference/dialects.md", "reference/formats.md", "reference/recipes.md")
