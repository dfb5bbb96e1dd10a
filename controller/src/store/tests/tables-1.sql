-- The tables of version 1, with something in them: what the migrations must be able to take over.
CREATE TABLE epoch (
    number INTEGER NOT NULL,
    nonce TEXT NOT NULL                 -- 16 hexadecimal digits
) STRICT;

CREATE TABLE nodes (
    host TEXT PRIMARY KEY,
    machine TEXT NOT NULL,
    boot TEXT NOT NULL,
    boot_number INTEGER NOT NULL,       -- counts the boots that this controller saw
    version TEXT NOT NULL,
    seen_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE attempts (
    job TEXT NOT NULL,
    attempt TEXT NOT NULL,
    ranks TEXT NOT NULL,
    hosts TEXT NOT NULL,                -- in rank order
    userid INTEGER,
    open INTEGER NOT NULL,
    touched_ms INTEGER NOT NULL,
    PRIMARY KEY (job, attempt)
) STRICT, WITHOUT ROWID;

CREATE TABLE actions (
    number INTEGER PRIMARY KEY,         -- in the order in which they began
    id TEXT NOT NULL UNIQUE,
    job TEXT NOT NULL,
    attempt TEXT NOT NULL,
    name TEXT NOT NULL,
    ranks TEXT NOT NULL,
    userid INTEGER,
    env TEXT NOT NULL,                  -- {name: value}
    timeout_ms INTEGER,
    began_ms INTEGER NOT NULL,
    waiting TEXT NOT NULL,              -- no Start was committed yet
    sent TEXT NOT NULL,                 -- Start committed, not accepted
    accepted TEXT NOT NULL,             -- accepted, not ended
    ok TEXT NOT NULL,
    ended TEXT NOT NULL,                -- ended otherwise: see ranks
    cancelling TEXT NOT NULL,
    cancel_why TEXT,
    boots TEXT NOT NULL,                -- {boot number of its Start: ranks}
    verdict TEXT,
    ended_ms INTEGER,
    unknown TEXT NOT NULL,              -- rebuilt from what nodes told: not heard of yet
    events_from INTEGER NOT NULL
) STRICT;
CREATE INDEX actions_by_attempt ON actions (job, attempt);

CREATE TABLE ranks (
    action TEXT NOT NULL,
    rank INTEGER NOT NULL,
    outcome TEXT NOT NULL,              -- its word, for people; `ended` has all of it
    ended TEXT NOT NULL,
    late TEXT NOT NULL,                 -- results that came after the outcome was settled
    PRIMARY KEY (action, rank)
) STRICT;

CREATE TABLE events (
    job TEXT NOT NULL,
    sequence INTEGER NOT NULL,
    timestamp REAL NOT NULL,
    name TEXT NOT NULL,
    context TEXT,
    PRIMARY KEY (job, sequence)
) STRICT, WITHOUT ROWID;

CREATE TABLE outbox (
    sequence INTEGER PRIMARY KEY,
    epoch INTEGER NOT NULL,
    job TEXT NOT NULL,
    attempt TEXT NOT NULL,
    body TEXT NOT NULL
) STRICT;

CREATE TABLE outbox_last (sequence INTEGER NOT NULL) STRICT;
INSERT INTO outbox_last VALUES (0);

INSERT INTO epoch VALUES (4, '00000000000000ff');
INSERT INTO attempts VALUES ('f1', '0', '0-3', 'n[0-3]', 1000, 0, 5), ('f1', '1', '0-3', 'n[0-3]', 1000, 1, 6);
INSERT INTO actions VALUES
    (1, '00000000-0000-0000-0000-000000000001', 'f1', '0', 'prolog', '0-3', 1000, '{}', NULL, 5, '', '', '', '0-3', '', '', NULL, '{}', 'ok', 6, '', 1),
    (2, '00000000-0000-0000-0000-000000000002', 'f1', '1', 'prolog', '0-3', 1000, '{}', 9, 6, '', '', '1', '0', '', '', NULL, '{"1":"0-3"}', NULL, NULL, '2-3', 4);
INSERT INTO outbox VALUES (3, 4, 'f1', '0', '{"event":"verdict"}');
UPDATE outbox_last SET sequence = 3;
