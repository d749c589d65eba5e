"""The classes of a plan: `plan.json` is made from them, and so is its schema, plan.schema.json."""
