-- Behind take.sql, of one who comes behind all: unless somebody may wait. It looks at no other table.
    AND awaited NOT BETWEEN :now AND :now + 120000000
