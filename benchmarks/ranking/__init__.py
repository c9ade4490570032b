"""How well losses rank rows: AUGRC of `auto` against every single score on real dumps."""
