-- What ADD DDLCAPTURE makes in a source database; pgddl.py runs the parts between the lines `----` in one transaction.
--
-- Rule: a shape is what the trail needs to know of a table. `shape` keeps each table's last known one. When a command
-- ends, the tables it may have touched are looked at again; where shape and catalogue differ, a transactional message
-- is written to the log, at its place, and the store follows, all within the transaction that runs the command.
-- A user's command never fails by this: what goes wrong is told as a warning, and to the reader of the log. (But where
-- two transactions change the same table at once, as with rows: a snapshot that is too old, a deadlock, lock_timeout.)

-- Nothing here may be found in a schema that somebody may have put in front of the system's.
SET LOCAL search_path = pg_catalog, pg_temp
----
CREATE SCHEMA IF NOT EXISTS trailgate
----
-- What stands here runs as a superuser. Who owns the schema or anything in it could put a function or a trigger of his
-- own in its place; so all of it must be a superuser's, also if somebody made it a moment ago.
DO $do$
DECLARE
    owner text;
BEGIN
    SELECT r.rolname INTO owner FROM (
        SELECT n.nspowner AS oid FROM pg_namespace n WHERE n.nspname = 'trailgate'
        UNION SELECT c.relowner FROM pg_class c WHERE c.relnamespace = 'trailgate'::regnamespace
        UNION SELECT p.proowner FROM pg_proc p WHERE p.pronamespace = 'trailgate'::regnamespace
    ) o JOIN pg_roles r USING (oid) WHERE NOT r.rolsuper LIMIT 1;
    IF FOUND THEN
        RAISE insufficient_privilege USING MESSAGE = format('schema trailgate exists and is not of Trailgate: it, or '
            'something in it, belongs to %s, who is no superuser', quote_ident(owner)),
            HINT = 'Look at what it holds, rename or drop it, then ADD DDLCAPTURE again';
    END IF;
END
$do$
----
COMMENT ON SCHEMA trailgate IS 'Trailgate: capture of schema changes. Made by ADD DDLCAPTURE, dropped by DELETE DDLCAPTURE.'
----
CREATE TABLE IF NOT EXISTS trailgate.install (version int PRIMARY KEY, key text NOT NULL)
----
COMMENT ON TABLE trailgate.install IS 'Anybody may write a message into the log; only one that knows the key is believed.'
----
CREATE TABLE IF NOT EXISTS trailgate.shape (oid oid PRIMARY KEY, shape jsonb NOT NULL)
----
CREATE TABLE IF NOT EXISTS trailgate.born (xid bigint, oid oid, lsn pg_lsn NOT NULL, message text NOT NULL, PRIMARY KEY (xid, oid))
----
COMMENT ON TABLE trailgate.born IS 'CREATE TABLE AS: its rows stand in the log before its end, so the reader fetches the message here.'
----
REVOKE ALL ON trailgate.install, trailgate.shape, trailgate.born FROM PUBLIC
----
LOCK TABLE trailgate.shape IN EXCLUSIVE MODE
----
INSERT INTO trailgate.install
SELECT $version$, coalesce((SELECT key FROM trailgate.install), gen_random_uuid()::text)
ON CONFLICT DO NOTHING
----
DELETE FROM trailgate.install WHERE version <> $version$
----
-- The names in a type, each with a number that it keeps through a rename: labels of an enum, attributes of a composite;
-- of an array or a domain those of what it is made of; of a composite also those of the types of its attributes, whose
-- numbers are above any label's. NULL for any other type.
CREATE OR REPLACE FUNCTION trailgate.inner_names(type oid) RETURNS jsonb LANGUAGE sql VOLATILE
SET search_path = pg_catalog, pg_temp AS $f$
WITH RECURSIVE part AS (
    SELECT p.oid, p.typtype, p.typrelid, p.typcategory, p.typbasetype, p.typelem, false AS inside
    FROM pg_type p WHERE p.oid = type
    UNION
    SELECT p.oid, p.typtype, p.typrelid, p.typcategory, p.typbasetype, p.typelem, m.inside OR m.typtype = 'c'
    FROM part m CROSS JOIN LATERAL (
        SELECT CASE WHEN m.typtype = 'd' THEN m.typbasetype WHEN m.typcategory = 'A' THEN m.typelem END AS oid
        UNION ALL
        SELECT f.atttypid FROM pg_attribute f
        WHERE m.typtype = 'c' AND f.attrelid = m.typrelid AND f.attnum > 0 AND NOT f.attisdropped
    ) i JOIN pg_type p ON p.oid = i.oid
), names AS (
    SELECT p.inside, p.oid, e.oid::bigint AS number, e.enumlabel AS name, e.enumsortorder AS place
    FROM part p JOIN pg_enum e ON e.enumtypid = p.oid
    UNION ALL
    SELECT p.inside, p.oid, f.attnum + CASE WHEN p.inside THEN 8589934592 + p.typrelid::bigint * 2048 ELSE 0 END,
        f.attname, f.attnum
    FROM part p JOIN pg_attribute f ON f.attrelid = p.typrelid
    WHERE p.typtype = 'c' AND f.attnum > 0 AND NOT f.attisdropped
)
SELECT jsonb_agg(jsonb_build_array(n.number, n.name) ORDER BY n.inside, n.oid, n.place) FROM names n
$f$
----
-- The shape of an ordinary, logged table (a partition is one, a partitioned table is not: it has no rows of its own);
-- NULL for anything else. VOLATILE, to see what the command that has just ended did.
CREATE OR REPLACE FUNCTION trailgate.shape_of(relation oid) RETURNS jsonb LANGUAGE sql VOLATILE
SET search_path = pg_catalog, pg_temp SET DateStyle = 'ISO' SET IntervalStyle = 'postgres' SET TimeZone = 'UTC'
SET extra_float_digits = 1 SET bytea_output = hex SET lc_monetary = 'C' SET xmloption = content AS $f$
SELECT jsonb_build_object(
    'schema', n.nspname,
    'name', c.relname,
    'columns', (
        SELECT coalesce(jsonb_agg(jsonb_build_object(
            'number', a.attnum, 'name', a.attname, 'typid', a.atttypid::bigint, 'typmod', a.atttypmod,
            'native', format_type(a.atttypid, a.atttypmod),
            'base', b.oid::bigint, 'kind', b.typtype, 'category', b.typcategory,
            'not_null', a.attnotnull, 'default', pg_get_expr(d.adbin, d.adrelid),
            'missing', CASE WHEN NOT a.atthasmissing THEN NULL
                WHEN b.typdelim = ',' THEN (a.attmissingval::text::text[])[1]
                ELSE btrim(a.attmissingval::text, '{}') END,
            'identity', a.attidentity, 'generated', a.attgenerated,
            'filled', b.filled, 'inner', trailgate.inner_names(a.atttypid)
        ) ORDER BY a.attnum), '[]')
        FROM pg_attribute a
        LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
        CROSS JOIN LATERAL (
            WITH RECURSIVE t AS (
                SELECT p.oid, p.typtype, p.typbasetype, p.typcategory, p.typdelim, p.typdefault IS NOT NULL AS filled
                FROM pg_type p WHERE p.oid = a.atttypid
                UNION ALL
                SELECT p.oid, p.typtype, p.typbasetype, p.typcategory, p.typdelim,
                    t.filled OR (p.typtype = 'd' AND p.typdefault IS NOT NULL)
                FROM t JOIN pg_type p ON p.oid = t.typbasetype WHERE t.typtype = 'd'
            ) SELECT * FROM t WHERE typtype <> 'd'
        ) b
        WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
    ),
    'key', (
        SELECT coalesce(jsonb_agg(a.attname ORDER BY k.place), '[]')
        FROM pg_index i CROSS JOIN LATERAL unnest(i.indkey[0:i.indnkeyatts - 1]) WITH ORDINALITY AS k (attnum, place)
        JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
        WHERE i.indrelid = c.oid AND i.indisprimary AND i.indisvalid AND i.indimmediate
    ))
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.oid = relation AND c.relkind = 'r' AND c.relpersistence = 'p'
    AND n.nspname NOT IN ('trailgate', 'trailgate_queue') AND n.nspname <> 'information_schema' AND n.nspname !~ '^pg_'
$f$
----
-- What of a shape counts as a change: not the names of types that were renamed, nor what rewriting a table settles.
CREATE OR REPLACE FUNCTION trailgate.plain(shape jsonb) RETURNS jsonb LANGUAGE sql IMMUTABLE
SET search_path = pg_catalog, pg_temp AS $f$
SELECT shape || jsonb_build_object('columns', (
    SELECT coalesce(jsonb_agg(c.value - '{native,missing,base,kind,category,filled}'::text[] ORDER BY c.place), '[]')
    FROM jsonb_array_elements(shape -> 'columns') WITH ORDINALITY AS c (value, place)))
$f$
----
-- Why old and new shape are not enough: 1 a column was retyped by an expression, 2 rows that were there got values
-- that only this server knows. `said` is all that is known of what was asked for, `zone` the session's time zone.
CREATE OR REPLACE FUNCTION trailgate.flags(old jsonb, new jsonb, said text, zone text) RETURNS int LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp AS $f$
WITH columns AS (
    SELECT o.value AS o, n.value AS n
    FROM jsonb_array_elements(new -> 'columns') n
    LEFT JOIN jsonb_array_elements(old -> 'columns') o ON o.value -> 'number' = n.value -> 'number'
), retyped AS (
    SELECT (o ->> 'base')::bigint AS before, (n ->> 'base')::bigint AS after FROM columns
    WHERE (o -> 'typid', o -> 'typmod') <> (n -> 'typid', n -> 'typmod')
)
SELECT CASE WHEN EXISTS (SELECT FROM retyped) AND (said ~* '\musing\M' OR said !~* '\mtype\M' OR EXISTS (
        SELECT FROM retyped
        WHERE before <> after AND (before IN (1083, 1114, 1184, 1266) OR after IN (1083, 1114, 1184, 1266))
            AND upper(zone) NOT IN ('UTC', 'ETC/UTC', 'GMT', 'UCT', 'ETC/UCT', 'ZULU', 'UNIVERSAL')))
    THEN 1 ELSE 0 END
  | CASE WHEN EXISTS (
        SELECT FROM columns
        WHERE o IS NULL AND n ->> 'generated' = '' AND (n ->> 'identity' <> '' OR (n ->> 'missing' IS NULL AND (
            (n ->> 'filled')::boolean
            OR n ->> 'default' !~* '^(-?[0-9.]+|true|false|null|''([^'']|'''')*'')(::[a-z0-9_ ."\[\](),]+)?$'))))
    THEN 2 ELSE 0 END
$f$
----
CREATE OR REPLACE FUNCTION trailgate.emit(message jsonb) RETURNS void LANGUAGE sql VOLATILE
SET search_path = pg_catalog, pg_temp AS $f$
-- The server sends a message's bytes as they are, in no client's encoding. SQL_ASCII may be no UTF-8: left alone.
SELECT pg_logical_emit_message(true, 'trailgate.ddl', convert_to(
    (message || jsonb_build_object('version', $version$, 'key', (SELECT key FROM trailgate.install LIMIT 1)))::text,
    CASE getdatabaseencoding() WHEN 'SQL_ASCII' THEN 'SQL_ASCII' ELSE 'UTF8' END))
$f$
----
-- For an Extract with TRIGGERLOG: into the queue, at its place, if the table is captured. Only into a queue of a
-- superuser's: what another one's table does with a row would be done as a superuser.
CREATE OR REPLACE FUNCTION trailgate.note(relation oid, new jsonb, message jsonb) RETURNS void LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp AS $f$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
        JOIN pg_roles o ON o.oid = c.relowner JOIN pg_roles s ON s.oid = n.nspowner
        WHERE n.nspname = 'trailgate_queue' AND c.relname IN ('shape', 'captured') AND c.relkind = 'r'
        AND o.rolsuper AND s.rolsuper HAVING count(*) = 2) THEN
        RETURN;
    END IF;
    INSERT INTO trailgate_queue.shape (relid, shape, message)
    SELECT k.relid, new, message FROM trailgate_queue.captured k WHERE k.relid = relation;
    IF new IS NULL THEN
        DELETE FROM trailgate_queue.captured k WHERE k.relid = relation;
    END IF;
END
$f$
----
-- A published table that is new, or got columns that may be stored out of line, gets what ADD TRANDATA would give it. A
-- new one also joins the publications of Extracts that list their tables.
CREATE OR REPLACE FUNCTION trailgate.adopt(relation oid, made boolean) RETURNS void LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
    publication record;
    wide boolean;
BEGIN
    IF NOT EXISTS (SELECT FROM pg_publication p WHERE p.pubname ~ '^tg_[0-9a-f]{8}_' AND (made OR p.puballtables
        OR EXISTS (SELECT FROM pg_get_publication_tables(p.pubname::text) t WHERE t.relid = relation))) THEN
        RETURN;
    END IF;
    SELECT c.reltoastrelid <> 0 OR NOT EXISTS (
        SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary AND i.indimmediate AND i.indisvalid)
    INTO wide FROM pg_class c WHERE c.oid = relation AND c.relreplident = 'd';
    IF wide THEN
        EXECUTE format('ALTER TABLE %s REPLICA IDENTITY FULL', relation::regclass);
    END IF;
    FOR publication IN
        SELECT p.pubname FROM pg_publication p
        WHERE made AND p.pubname ~ '^tg_[0-9a-f]{8}_' AND NOT p.puballtables
            AND NOT EXISTS (SELECT FROM pg_get_publication_tables(p.pubname::text) t WHERE t.relid = relation)
    LOOP
        EXECUTE format('ALTER PUBLICATION %I ADD TABLE %s', publication.pubname, relation::regclass);
    END LOOP;
EXCEPTION WHEN OTHERS THEN
    RAISE WARNING 'trailgate: table % was not prepared for capture: %', relation::regclass, SQLERRM
        USING HINT = 'ADD TRANDATA for it, and add it to the Extract''s publication.';
END
$f$
----
-- Of all that the client sent in one go the statements of this kind, with '...' for each literal, ... for each number,
-- and of comments only those of plain words. What else stands there (other statements, passwords, values) is nobody's
-- business beyond this server. What can't be told apart for sure is left out: then the command's tag is all that is said.
CREATE OR REPLACE FUNCTION trailgate.own_text(query text, tag text) RETURNS text LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
    rest text := query;
    token text;
    words text[] := '{}';
    statement text := '';
    found text[] := '{}';
    kind text[] := string_to_array(tag, ' ');
    place int;
BEGIN
    IF query IS NULL OR length(query) > 10000 OR current_setting('standard_conforming_strings') <> 'on' THEN
        RETURN tag;
    END IF;
    LOOP
        token := CASE
            WHEN rest = '' THEN ';'
            WHEN rest ~ '^[eE]''' THEN substring(rest FROM $r$^[eE]'(?:[^'\\]|''|\\.)*'$r$)
            WHEN rest ~ '^''' THEN substring(rest FROM $r$^'(?:[^']|'')*'$r$)
            WHEN rest ~ '^"' THEN substring(rest FROM '^"(?:[^"]|"")*"')
            WHEN rest ~ '^--' THEN substring(rest FROM '^--[^\n\r]*')
            WHEN rest ~ '^/\*' THEN substring(rest FROM '^/\*(?:[^*/]|\*(?!/)|/(?!\*))*\*/')
            WHEN rest ~ '^\$(?:[[:alpha:]_][[:alnum:]_]*)?\$' THEN
                substring(rest FROM '^\$(?:[[:alpha:]_][[:alnum:]_]*)?\$')
            WHEN rest ~ '^[[:alpha:]_]' THEN substring(rest FROM '^[[:alpha:]_][[:alnum:]_$]*')
            WHEN rest ~ '^[0-9]' THEN substring(rest FROM '^[0-9][[:alnum:]_.]*')
            WHEN rest ~ '^[^[:alnum:]_''"$/;-]' THEN substring(rest FROM '^[^[:alnum:]_''"$/;-]+')
            ELSE left(rest, 1)
        END;
        IF token IS NULL THEN
            RETURN tag;
        END IF;
        rest := substr(rest, length(token) + 1);
        IF token ~ '^\$.*\$$' THEN
            place := strpos(rest, token);
            IF place = 0 THEN
                RETURN tag;
            END IF;
            rest := substr(rest, place + length(token));
            token := '''''';
        END IF;
        IF token = ';' THEN
            IF words[1] = kind[1] AND kind[1] <> 'SELECT' AND kind[2] = ANY (words[2:4]) THEN
                found := found || btrim(statement, E' \n\r\t');
            END IF;
            EXIT WHEN rest = '';
            words := '{}';
            statement := '';
        ELSIF token ~ '^[eE]?''' THEN
            statement := statement || '''...''';
        ELSIF token ~ '^[0-9]' THEN
            statement := statement || '...';
        ELSIF token ~ '^(--|/\*)' AND token ~ '[[:digit:]''"$;=]' THEN
            statement := statement || ' ';
        ELSE
            IF token ~ '^[[:alpha:]_]' AND coalesce(array_length(words, 1), 0) < 4 THEN
                words := words || upper(token);
            END IF;
            statement := statement || token;
        END IF;
    END LOOP;
    RETURN coalesce(nullif(array_to_string(found, '; '), ''), tag);
END
$f$
----
-- Hold one table against the store; tell what changed. `said` is all that is known of what was asked for, which stays
-- here; `own` what is told of it. `made`: the command that has just ended made the table.
CREATE OR REPLACE FUNCTION trailgate.compare(relation oid, said text, own text, zone text, made boolean)
RETURNS void LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
    old jsonb;
    new jsonb;
    op text;
    rows boolean := false;
    message jsonb;
BEGIN
    -- First the lock, then a look: ALTER SCHEMA does not wait for those who are just changing its tables.
    SELECT s.shape INTO old FROM trailgate.shape s WHERE s.oid = relation FOR UPDATE;
    new := trailgate.shape_of(relation);
    IF old IS NULL AND new IS NULL THEN
        RETURN;
    ELSIF new IS NULL THEN
        DELETE FROM trailgate.shape s WHERE s.oid = relation;
        IF EXISTS (SELECT FROM pg_class c WHERE c.oid = relation) THEN
            RETURN;  -- it is out of sight (unlogged now), and not gone
        END IF;
        op := 'DROP';
    ELSE
        INSERT INTO trailgate.shape AS s VALUES (relation, new)
            ON CONFLICT (oid) DO UPDATE SET shape = new WHERE s.shape IS DISTINCT FROM new;
        IF old IS NOT NULL AND trailgate.plain(old) = trailgate.plain(new) THEN
            RETURN;
        END IF;
        op := CASE WHEN old IS NULL THEN 'CREATE'
            WHEN (old -> 'schema', old -> 'name') <> (new -> 'schema', new -> 'name') THEN 'RENAME' ELSE 'ALTER' END;
        rows := pg_relation_size(relation) > 0;
    END IF;
    message := jsonb_build_object('op', op, 'oid', relation::bigint, 'old', old, 'new', new, 'rows', rows,
        'sql', own,
        'flags', CASE WHEN rows AND op <> 'CREATE' THEN trailgate.flags(old, new, said, zone) ELSE 0 END);
    PERFORM trailgate.emit(message);
    PERFORM trailgate.note(relation, new, message);
    IF op = 'CREATE' AND made THEN
        IF rows THEN
            DELETE FROM trailgate.born b WHERE b.lsn < (SELECT coalesce(min(s.restart_lsn), pg_current_wal_insert_lsn())
                FROM pg_replication_slots s WHERE s.slot_type = 'logical' AND s.database = current_database());
            INSERT INTO trailgate.born VALUES (pg_current_xact_id()::text::numeric % 4294967296, relation,
                pg_current_wal_insert_lsn(), message::text) ON CONFLICT DO NOTHING;
        END IF;
        PERFORM trailgate.adopt(relation, true);
    ELSIF op = 'ALTER' AND EXISTS (SELECT FROM jsonb_path_query(new, '$.columns[*]') n WHERE NOT EXISTS (
        SELECT FROM jsonb_path_query(old, '$.columns[*]') o
        WHERE (o -> 'number', o -> 'typid') = (n -> 'number', n -> 'typid'))) THEN
        PERFORM trailgate.adopt(relation, false);
    END IF;
END
$f$
----
-- All tables whose shape a command may have changed: those it names, their heirs, those of a schema or of a type.
CREATE OR REPLACE FUNCTION trailgate.touched() RETURNS TABLE (oid oid, made boolean) LANGUAGE sql VOLATILE
SET search_path = pg_catalog, pg_temp AS $f$
WITH RECURSIVE command AS (
    SELECT * FROM pg_event_trigger_ddl_commands()
), types AS (
    SELECT t.oid FROM command d JOIN pg_type t ON t.oid = d.objid OR t.typrelid = d.objid
    WHERE d.command_tag = 'ALTER TYPE'
    UNION
    SELECT t.oid FROM types u JOIN pg_type t ON t.typbasetype = u.oid OR (t.typelem = u.oid AND t.typcategory = 'A')
        OR (t.typtype = 'c' AND EXISTS (SELECT FROM pg_attribute f WHERE f.attrelid = t.typrelid
            AND f.atttypid = u.oid AND f.attnum > 0))
), named AS (
    SELECT objid AS oid, command_tag ~ '^(CREATE|SELECT)' AS made FROM command WHERE classid = 'pg_class'::regclass
    UNION ALL
    SELECT c.oid, false FROM command d JOIN pg_class c ON c.relnamespace = d.objid
    WHERE d.classid = 'pg_namespace'::regclass AND d.command_tag = 'ALTER SCHEMA'
    UNION ALL
    SELECT c.oid, false FROM types t JOIN pg_class c ON c.reloftype = t.oid
    UNION ALL
    SELECT a.attrelid, false FROM types t JOIN pg_attribute a ON a.atttypid = t.oid AND a.attnum > 0
), family AS (
    SELECT * FROM named
    UNION
    SELECT i.inhrelid, false FROM family f JOIN pg_inherits i ON i.inhparent = f.oid
)
SELECT f.oid, bool_or(f.made) FROM family f JOIN pg_class c ON c.oid = f.oid WHERE c.relkind = 'r'
GROUP BY f.oid ORDER BY f.oid
$f$
----
-- The same of a command that dropped something: whole tables, columns, or what defaults and keys depended on.
CREATE OR REPLACE FUNCTION trailgate.dropped() RETURNS TABLE (oid oid, made boolean) LANGUAGE sql VOLATILE
SET search_path = pg_catalog, pg_temp AS $f$
SELECT DISTINCT t.oid, false FROM pg_event_trigger_dropped_objects() d CROSS JOIN LATERAL (
    SELECT d.objid AS oid WHERE d.classid = 'pg_class'::regclass AND d.object_type IN ('table', 'table column')
    UNION ALL
    SELECT c.oid FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE d.object_type IN ('default value', 'table constraint')
        AND n.nspname = d.address_names[1] AND c.relname = d.address_names[2]
) t WHERE NOT d.is_temporary ORDER BY t.oid
$f$
----
CREATE OR REPLACE FUNCTION trailgate.on_ddl() RETURNS event_trigger LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET jit = off AS $f$
DECLARE
    touched record;
    context text;
    own text := tg_tag;
BEGIN
    GET DIAGNOSTICS context = PG_CONTEXT;
    BEGIN
        IF strpos(context, chr(10)) = 0 THEN  -- the client itself sent it, and not a function of somebody's
            own := trailgate.own_text(current_query(), tg_tag);
        END IF;
        context := left(coalesce(current_query(), ''), 1000000) || chr(10) || context;
        IF tg_event = 'sql_drop' THEN
            FOR touched IN SELECT * FROM trailgate.dropped() LOOP
                PERFORM trailgate.compare(touched.oid, context, own, current_setting('TimeZone'), touched.made);
            END LOOP;
        ELSE
            FOR touched IN SELECT * FROM trailgate.touched() LOOP
                PERFORM trailgate.compare(touched.oid, context, own, current_setting('TimeZone'), touched.made);
            END LOOP;
        END IF;
    EXCEPTION WHEN serialization_failure OR deadlock_detected OR lock_not_available THEN
        RAISE;
    WHEN OTHERS THEN
        RAISE WARNING 'trailgate: what % changed was not captured: %', tg_tag, SQLERRM;
        PERFORM trailgate.emit(jsonb_build_object('failed', SQLERRM, 'sql', tg_tag));
    END;
EXCEPTION WHEN serialization_failure OR deadlock_detected OR lock_not_available THEN
    -- The table was changed after this transaction's snapshot, so it can't see what it changes; or another transaction
    -- is just changing it, and this one may not wait. Trying again helps.
    RAISE;
WHEN OTHERS THEN
    RAISE WARNING 'trailgate: schema changes are not captured: %', SQLERRM
        USING HINT = 'ADD DDLCAPTURE again, or DROP EVENT TRIGGER for those that begin with 00_trailgate.';
END
$f$
----
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA trailgate FROM PUBLIC
----
-- Tables whose changes nobody saw (they were made before, or while the trigger was off) are known from here on.
DELETE FROM trailgate.shape s WHERE trailgate.shape_of(s.oid) IS NULL
----
INSERT INTO trailgate.shape AS s
SELECT c.oid, shape FROM pg_class c CROSS JOIN LATERAL trailgate.shape_of(c.oid) shape WHERE shape IS NOT NULL
ON CONFLICT (oid) DO UPDATE SET shape = excluded.shape WHERE s.shape IS DISTINCT FROM excluded.shape
----
DROP EVENT TRIGGER IF EXISTS "00_trailgate_drop"
----
DROP EVENT TRIGGER IF EXISTS "00_trailgate_end"
----
-- Event triggers run in the order of their names: before any that a user's own trigger could write rows in.
CREATE EVENT TRIGGER "00_trailgate_drop" ON sql_drop EXECUTE FUNCTION trailgate.on_ddl()
----
CREATE EVENT TRIGGER "00_trailgate_end" ON ddl_command_end EXECUTE FUNCTION trailgate.on_ddl()
