-- What ADD TRANDATA and REGISTER EXTRACT with TRIGGERLOG make in a source database; install.py runs the parts between
-- the lines `----` in one transaction. The functions for a table's shape come from ../ddl.sql, behind these parts.
--
-- Rule: whoever writes a captured table has no right to the queue. The functions run as the queue's owner, find nothing
-- but the system's own names, and write values in one form, whatever the application's session says. A trigger knows
-- nothing of its table's columns: no change of shape can make an application's statement fail.

SET LOCAL search_path = pg_catalog, pg_temp
----
CREATE SCHEMA IF NOT EXISTS trailgate_queue
----
-- What stands here may run as a superuser. Who owns the schema or anything in it could put something of his own in its
-- place; so all of it must be a superuser's or the installing user's own.
DO $do$
DECLARE
    owner text;
BEGIN
    SELECT r.rolname INTO owner FROM (
        SELECT n.nspowner AS oid FROM pg_namespace n WHERE n.nspname = 'trailgate_queue'
        UNION SELECT c.relowner FROM pg_class c WHERE c.relnamespace = 'trailgate_queue'::regnamespace
        UNION SELECT p.proowner FROM pg_proc p WHERE p.pronamespace = 'trailgate_queue'::regnamespace
    ) o JOIN pg_roles r USING (oid) WHERE NOT r.rolsuper AND r.rolname <> current_user LIMIT 1;
    IF FOUND THEN
        RAISE insufficient_privilege USING MESSAGE = format('schema trailgate_queue, or something in it, belongs to %s',
            quote_ident(owner)), HINT = 'Log in as that user; or, if it is none of yours, look at it and drop it';
    END IF;
END
$do$
----
COMMENT ON SCHEMA trailgate_queue IS 'Trailgate: the queue of TRIGGERLOG. Made by ADD TRANDATA, dropped by UNREGISTER EXTRACT.'
----
CREATE TABLE IF NOT EXISTS trailgate_queue.install (id text PRIMARY KEY, version int NOT NULL, reader text NOT NULL)
----
-- One row a change. `xid` is that of the whole transaction, also where a savepoint's own one wrote the row. `old_at` and
-- `new_at` are where the row stood and stands: by them it is found out which of a row's changes came first.
CREATE TABLE IF NOT EXISTS trailgate_queue.log (
    id bigserial NOT NULL,
    xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    relid oid NOT NULL,
    depth smallint NOT NULL DEFAULT pg_trigger_depth(),
    op "char" NOT NULL,
    old_at tid,
    new_at tid,
    old text,
    new text,
    snapshot pg_snapshot
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000)
----
CREATE INDEX IF NOT EXISTS log_xid ON trailgate_queue.log (xid)
----
COMMENT ON TABLE trailgate_queue.log IS 'Changes that are not synced in the trail yet.'
----
CREATE FUNCTION trailgate_queue.keep() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $f$
BEGIN
    IF current_setting('trailgate.reader', true) IS DISTINCT FROM 'on' THEN
        RAISE object_in_use USING MESSAGE = 'changes in the queue of Trailgate may not be in its trail yet',
            HINT = 'Its Extract deletes them once they are. UNREGISTER EXTRACT removes the queue';
    END IF;
    RETURN NULL;
END
$f$
----
CREATE TRIGGER keep BEFORE UPDATE OR DELETE OR TRUNCATE ON trailgate_queue.log
FOR EACH STATEMENT EXECUTE FUNCTION trailgate_queue.keep()
----
CREATE TABLE IF NOT EXISTS trailgate_queue.tick (tick bigint PRIMARY KEY, state text NOT NULL)
----
COMMENT ON TABLE trailgate_queue.tick IS 'Up to which snapshot each transaction of the trail goes.'
----
-- Shapes of captured tables, each from its id on. `message`: what the event trigger said, for a change of shape.
CREATE TABLE IF NOT EXISTS trailgate_queue.shape (
    id bigint PRIMARY KEY DEFAULT nextval('trailgate_queue.log_id_seq'),
    xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
    relid oid NOT NULL,
    shape jsonb,
    message jsonb
)
----
-- The tables that are captured, each with its triggers as they were made.
CREATE TABLE IF NOT EXISTS trailgate_queue.captured (relid oid PRIMARY KEY, triggers text NOT NULL)
----
INSERT INTO trailgate_queue.install SELECT gen_random_uuid()::text, $version$, ''
WHERE NOT EXISTS (SELECT FROM trailgate_queue.install)
----
-- concat() writes a row as the server does. A cast would be the one that the owner of the table's type may have made.
CREATE OR REPLACE FUNCTION trailgate_queue.log_insert() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER $settings$ AS $f$
BEGIN
    INSERT INTO trailgate_queue.log (relid, op, new_at, new) VALUES (tg_relid, 'I', new.ctid, concat(new));
    RETURN NULL;
END
$f$
----
CREATE OR REPLACE FUNCTION trailgate_queue.log_update() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER $settings$ AS $f$
BEGIN
    INSERT INTO trailgate_queue.log (relid, op, old_at, new_at, old, new)
    VALUES (tg_relid, 'U', old.ctid, new.ctid, concat(old), concat(new));
    RETURN NULL;
END
$f$
----
CREATE OR REPLACE FUNCTION trailgate_queue.log_delete() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER $settings$ AS $f$
BEGIN
    INSERT INTO trailgate_queue.log (relid, op, old_at, old) VALUES (tg_relid, 'D', old.ctid, concat(old));
    RETURN NULL;
END
$f$
----
-- Of the heartbeat's table: with what was committed before it, so that nothing else comes with it, and all that is
-- older before it.
CREATE OR REPLACE FUNCTION trailgate_queue.log_beat() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER $settings$ AS $f$
BEGIN
    INSERT INTO trailgate_queue.log (relid, op, new_at, new, snapshot)
    VALUES (tg_relid, 'I', new.ctid, concat(new), pg_current_snapshot());
    RETURN NULL;
END
$f$
----
CREATE OR REPLACE FUNCTION trailgate_queue.log_truncate() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $f$
BEGIN
    INSERT INTO trailgate_queue.log (relid, op) VALUES (tg_relid, 'T');
    RETURN NULL;
END
$f$
----
-- The triggers of a table that are ours. One that was dropped, made again, replaced, or switched off and on has another
-- text from then on, so nobody misses that it did not fire for a while.
CREATE OR REPLACE FUNCTION trailgate_queue.triggers_of(relation oid) RETURNS text LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp AS $f$
SELECT string_agg(concat_ws(' ', t.tgname, t.xmin, t.tgenabled, t.tgfoid, t.tgtype, t.tgqual, t.tgattr), ', '
    ORDER BY t.tgname)
FROM pg_trigger t WHERE t.tgrelid = relation AND t.tgname LIKE '00\_trailgate\_%'
$f$
----
-- Another text once a table's columns, key or name may be others; cheaper than to look at its shape.
CREATE OR REPLACE FUNCTION trailgate_queue.print_of(relation oid) RETURNS text LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp AS $f$
SELECT concat_ws(' ', n.xmin, c.xmin,
    (SELECT string_agg(a.xmin::text, ',' ORDER BY a.attnum) FROM pg_attribute a
     WHERE a.attrelid = c.oid AND a.attnum > 0),
    (SELECT string_agg(i.xmin::text, ',' ORDER BY i.indexrelid) FROM pg_index i
     WHERE i.indrelid = c.oid AND i.indisprimary))
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = relation
$f$
