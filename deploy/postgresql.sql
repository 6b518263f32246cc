-- What a site needs of PostgreSQL 18, for the database's owner to run: a role that can read the study's table and
-- nothing else. Its password belongs into the password file of the agent's user (PGPASSFILE), never into site.toml.

CREATE ROLE wardround_reader LOGIN CONNECTION LIMIT 8;
ALTER ROLE wardround_reader SET default_transaction_read_only = on;
GRANT USAGE ON SCHEMA public TO wardround_reader;
GRANT SELECT ON public.encounters TO wardround_reader;

-- Only if questions take too long: each row's rank within its patient, in a random order. `rank = "place"` in
-- site.toml then replaces the choice that the agent otherwise makes for every question. The index is required: it
-- is what keeps two rows of a patient from having the same rank. Rows that come later have no rank and do not count
-- until this is run again.

ALTER TABLE public.encounters ADD COLUMN IF NOT EXISTS place integer;
DROP INDEX IF EXISTS public.encounters_place;
UPDATE public.encounters SET place = drawn.place
FROM (
    SELECT ctid AS stored, row_number() OVER (PARTITION BY patient_id ORDER BY random()) AS place
    FROM public.encounters
) AS drawn
WHERE encounters.ctid = drawn.stored;
CREATE UNIQUE INDEX encounters_place ON public.encounters (patient_id, place);
