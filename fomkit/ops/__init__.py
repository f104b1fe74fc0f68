"""Tables of ops: their columns, costs, other sizes and number formats, and views of them."""
