-- {table}: an entry a row. One that is gone holds nothing: what was deleted stays for a minute for
-- those who follow, and each step leaves what it took, under its number, in case its answer is
-- lost.
CREATE TABLE IF NOT EXISTS {table} (
	expires timestamptz NOT NULL,
	xid xid8, -- the transaction that wrote it, if its kind is followed
	version smallint NOT NULL DEFAULT 1, -- of the row's form
	gone boolean NOT NULL DEFAULT false,
	key text COLLATE "C" PRIMARY KEY,
	value bytea NOT NULL,
	taken bytea[] -- by the step
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_insert_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05);

CREATE INDEX IF NOT EXISTS {expires} ON {table} (expires);

CREATE INDEX IF NOT EXISTS {xid} ON {table} (xid) WHERE xid IS NOT NULL;

-- {do} makes calls, sorted by key, as the step of a number, and then the Gets of asked. It returns which
-- call failed (0: none; negative: no room for it), what is under the keys then, or else what
-- was taken (answers), and what was asked for (got).
--
-- Clocks: clock_timestamp, because a statement may have waited for a row.
CREATE OR REPLACE PROCEDURE {do}(
	ops smallint[], keys text[], olds bytea[], items bytea[], mosts bigint[], lifetimes bigint[], follows boolean[],
	asked text[], step text, room bigint, durability text, channel text,
	INOUT failed integer, INOUT answers bytea[], INOUT got bytea[]
) LANGUAGE plpgsql AS $do$
DECLARE
	changes CONSTANT integer := cardinality(ops);
	ends timestamptz;
	txn xid8;
	inserted boolean;
	added integer := 0; -- the last call that added a row
	held bytea;
BEGIN
	-- An index even where the table was tiny when the plan was made.
	PERFORM set_config('synchronous_commit', durability, true), set_config('enable_seqscan', 'off', true);
	answers := array_fill(NULL::bytea, ARRAY[changes]);
	failed := 0;
	IF changes > 0 THEN
		BEGIN
			FOR i IN 1..changes LOOP
				failed := i;
				ends := clock_timestamp() + lifetimes[i] * interval '1 millisecond';
				txn := CASE WHEN follows[i] THEN pg_current_xact_id() END;
				CASE
				WHEN ops[i] IN (1, 2, 6) THEN -- Put, Add, Append
					IF ops[i] = 6 AND length(items[i]) > mosts[i] THEN
						RAISE SQLSTATE 'FS001';
					END IF;
					INSERT INTO {table} AS e (key, value, expires, xid)
					VALUES (keys[i], items[i], ends, txn)
					ON CONFLICT (key) DO UPDATE SET
						value = CASE WHEN ops[i] = 6 AND NOT e.gone AND e.expires > clock_timestamp()
							THEN e.value || excluded.value ELSE excluded.value END,
						expires = CASE WHEN ops[i] = 6 AND NOT e.gone THEN greatest(e.expires, excluded.expires) ELSE excluded.expires END,
						xid = excluded.xid, gone = false, version = 1
					WHERE ops[i] = 1 OR e.gone OR e.expires <= clock_timestamp()
						OR ops[i] = 6 AND length(e.value) + length(items[i]) <= mosts[i]
					RETURNING e.xmax = 0 INTO inserted;
					IF NOT FOUND THEN
						RAISE SQLSTATE 'FS001';
					END IF;
					IF inserted THEN
						room := room - 1;
						added := i;
					END IF;
				WHEN ops[i] = 3 THEN -- Swap
					UPDATE {table} AS e SET value = items[i], expires = ends, xid = txn, version = 1
					WHERE e.key = keys[i] AND e.value = olds[i] AND NOT e.gone AND e.expires > clock_timestamp();
					IF NOT FOUND THEN
						RAISE SQLSTATE 'FS001';
					END IF;
				WHEN follows[i] THEN -- Take, Delete
					UPDATE {table} AS e SET gone = true, expires = clock_timestamp() + interval '1 minute', xid = txn
					WHERE e.key = keys[i] AND NOT e.gone AND (ops[i] = 5 OR e.expires > clock_timestamp())
					RETURNING e.value INTO held;
					IF FOUND THEN
						answers[i] := held;
						room := room + 1;
					ELSIF ops[i] = 4 THEN
						RAISE SQLSTATE 'FS001';
					END IF;
				ELSE
					DELETE FROM {table} AS e
					WHERE e.key = keys[i] AND (ops[i] = 5 OR NOT e.gone AND e.expires > clock_timestamp())
					RETURNING e.value INTO held;
					IF FOUND THEN
						answers[i] := held;
						room := room + 1;
					ELSIF ops[i] = 4 THEN
						RAISE SQLSTATE 'FS001';
					END IF;
				END CASE;
			END LOOP;
			IF added > 0 AND room < 0 THEN -- with what the step itself has removed
				failed := added;
				RAISE SQLSTATE 'FS002';
			END IF;
			INSERT INTO {table} (key, value, expires, gone, taken)
			VALUES (step, '', clock_timestamp() + interval '1 minute', true, CASE WHEN 4 = ANY (ops) THEN answers END)
			ON CONFLICT DO NOTHING;
			IF NOT FOUND THEN
				RAISE SQLSTATE 'FS001';
			END IF;
			failed := 0;
		EXCEPTION
		WHEN SQLSTATE 'FS001' OR SQLSTATE 'FS002' THEN
			-- An earlier trial made this step, or else it cannot be made.
			SELECT e.taken INTO answers FROM {table} AS e WHERE e.key = step;
			IF FOUND THEN
				failed := 0;
			ELSIF SQLSTATE = 'FS002' THEN
				failed := -failed;
			ELSE
				SELECT array_agg(e.value ORDER BY k.i) INTO answers
				FROM unnest(keys) WITH ORDINALITY AS k(key, i)
				LEFT JOIN {table} AS e ON e.key = k.key AND NOT e.gone AND e.expires > clock_timestamp();
			END IF;
		END;
	END IF;
	IF failed <> 0 THEN
		RETURN;
	END IF;
	IF changes > 0 AND (channel <> '' OR cardinality(asked) > 0) THEN
		COMMIT; -- what follows sees what others have committed by now
		PERFORM set_config('enable_seqscan', 'off', true);
	END IF;
	got := {get}(asked);
	IF channel <> '' THEN
		-- Not in the transaction of the change: all that notify commit one after the other, and
		-- this one waits for no disk.
		PERFORM pg_notify(channel, '');
	END IF;
END
$do$;

-- {get} returns what is under each key.
CREATE OR REPLACE FUNCTION {get}(keys text[]) RETURNS bytea[] LANGUAGE plpgsql STABLE AS $get$
DECLARE
	got bytea[] := array_fill(NULL::bytea, ARRAY[cardinality(keys)]);
	held bytea;
BEGIN
	FOR i IN 1..cardinality(keys) LOOP
		SELECT e.value INTO held FROM {table} AS e WHERE e.key = keys[i] AND NOT e.gone AND e.expires > now();
		got[i] := held;
	END LOOP;
	RETURN got;
END
$get$;

-- {sweep} removes some expired rows, but none that another transaction holds, and returns how many.
CREATE OR REPLACE FUNCTION {sweep}(most integer) RETURNS integer LANGUAGE plpgsql AS $sweep$
DECLARE
	swept integer;
BEGIN
	PERFORM set_config('synchronous_commit', 'off', true), set_config('enable_seqscan', 'off', true);
	DELETE FROM {table} WHERE ctid = ANY (ARRAY(
		SELECT ctid FROM {table} WHERE expires <= now() ORDER BY expires LIMIT most FOR UPDATE SKIP LOCKED));
	GET DIAGNOSTICS swept = ROW_COUNT;
	RETURN swept;
END
$sweep$;

-- {count} counts the rows of a small table, and estimates those of a large one as the planner does.
CREATE OR REPLACE FUNCTION {count}(OUT entries bigint, OUT exact boolean) LANGUAGE plpgsql AS $count$
DECLARE
	size CONSTANT bigint := pg_relation_size('{table}'::regclass);
BEGIN
	exact := size < 8 * 1024 * 1024;
	IF exact THEN
		SELECT count(*) INTO entries FROM {table} WHERE NOT gone;
	ELSE
		SELECT CASE WHEN c.reltuples > 0 AND c.relpages > 0
			THEN c.reltuples / c.relpages * (size / current_setting('block_size')::bigint)
			ELSE size / 900 END INTO entries
		FROM pg_class AS c WHERE c.oid = '{table}'::regclass;
	END IF;
END
$count$;

COMMENT ON TABLE {table} IS 'caddy-fhir store, version 1';
