"""Ways to lose, repeat or believe what a crash, a disk or a network left: each is one small change of the source."""

from __future__ import annotations

from collections.abc import Mapping

from tests.mutants.mutants import Mutant, mutant

DATABASE, RESTART = "tests/federation/ledger/test_ledger_database.py", "tests/coordinator/rounds/test_restart.py"
SITE_LEDGER, AGENT = "tests/federation/ledger/test_site_ledger.py", "tests/site_agent/serving/test_agent.py"
COLLECTION, DISKS = "tests/coordinator/rounds/test_collection.py", "tests/site_agent/disk/test_full_disks.py"
SHARED, THREADS = "tests/site_agent/store/test_shared_account.py", "tests/coordinator/rounds/test_threads.py"
FILES, CLOCKS = "tests/endurance/schedules/test_files.py", "tests/endurance/schedules/test_clocks.py"

DURABILITY: Mapping[str, Mutant] = {
    # --- the file under every ledger ---
    "who writes beside others does not wait for the commit": mutant("        group.done.wait()\n", "", DATABASE),
    "a commit that failed is not told": mutant(
        "        if group.error is not None:\n            raise self._fault(group.error) from None\n", "", DATABASE
    ),
    "a group that failed is not rolled back": mutant(
        '            if group.connection.in_transaction:\n                group.connection.execute("ROLLBACK")\n'
        "        except sqlite3.Error as error:\n            group.error = error\n            self._broken = isinst",
        "            pass\n"
        "        except sqlite3.Error as error:\n            group.error = error\n            self._broken = isinst",
        DATABASE,
    ),
    "a part that failed is not undone": mutant(
        '                group.connection.execute("ROLLBACK TO part")\n', "", DATABASE
    ),
    "a block that raised leaves what it wrote": mutant(
        '            elif group.connection.in_transaction:\n                group.connection.execute("ROLLBACK")\n',
        '            elif group.connection.in_transaction:\n                group.connection.execute("COMMIT")\n',
        DATABASE,
    ),
    "a failed sync is a full disk": mutant(
        "{sqlite3.SQLITE_FULL, sqlite3.SQLITE_CANTOPEN}",
        "{sqlite3.SQLITE_FULL, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_IOERR}",
        FILES,
    ),
    "a full disk is a broken one": mutant(
        "{sqlite3.SQLITE_FULL, sqlite3.SQLITE_CANTOPEN}", "{sqlite3.SQLITE_CANTOPEN}", DATABASE, DISKS
    ),
    "no descriptor left is a broken ledger": mutant(
        "{sqlite3.SQLITE_FULL, sqlite3.SQLITE_CANTOPEN}", "{sqlite3.SQLITE_FULL}", DATABASE
    ),
    "the disk is not waited for": mutant("_OFF, _EXTRA = 0, 3\n", "_OFF, _EXTRA = 0, 0\n", DATABASE),
    "the journal is in memory": mutant('(_EXTRA, "delete")', '(_EXTRA, "memory")', DATABASE),
    "two processes serve one folder": mutant(
        "            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)\n", "            pass\n", DATABASE
    ),
    "a lost ledger is begun anew": mutant(
        '            if existing:\n                raise lost(path, "is missing", advice)\n', "", DATABASE
    ),
    # --- the consortium ---
    "a restart forgets what is open": mutant(
        "        for question in self._unfinished():\n            self._dispatch.open_again(question.plan)\n",
        "        for question in ():\n            self._dispatch.open_again(question.plan)\n",
        RESTART,
    ),
    "a restart gives all of the time again": mutant(
        "        left = min(max(study.deadline_seconds - since, 0.0), study.deadline_seconds)\n",
        "        left = study.deadline_seconds\n",
        RESTART,
    ),
    "what another process charged is charged again": mutant(
        "            if round_.reserved:\n                return\n", "", "tests/coordinator/accounts/test_budget.py"
    ),
    "a settled round is settled again": mutant(
        "        if round_.before.outcome is not None:\n            return round_.before.outcome\n", "", RESTART
    ),
    "a busy ledger ends a round without an answer": mutant(
        "                self._plan(plan_id, RETRY_SECONDS)\n", "                pass\n", THREADS
    ),
    "a freeze is undone by its own error": mutant(
        '            task.freeze("two answers to one plan")\n            return ReleaseConflict()\n',
        '            task.freeze("two answers to one plan")\n            raise ReleaseConflict\n',
        COLLECTION,
    ),
    "pieces that are not the release are taken": mutant(
        "        if len(content) != size or hashlib.sha256(content).hexdigest() != release_hash:\n",
        "        if len(content) != size:\n",
        "tests/protos/test_pieces.py",
    ),
    # --- a site ---
    "what is owed is not sent": mutant(
        "        for kept in self.ledger.undelivered():\n            self._send(kept)\n", "        return\n", AGENT
    ),
    "a receipt is forgotten": mutant(
        "            outbox.store_receipt(connection, plan_id, receipt)\n", "", SITE_LEDGER
    ),
    "any receipt will do": mutant(
        "            if not outbox.is_receipt_for(kept, receipt, site=self.name, coordinator=self._coordinator):\n",
        "            if False:\n",
        SITE_LEDGER,
    ),
    "a ledger that forgot is charged": mutant(
        "            refuse_unless_contained(connection, head)\n            self._charge(",
        "            self._charge(",
        SITE_LEDGER,
        "tests/federation/ledger/test_freezing.py",
    ),
    "an agent outlives a broken ledger": mutant(
        "        except InvariantBroken:\n            raise\n        except FederationError as error:\n",
        "        except FederationError as error:\n",
        AGENT,
    ),
    "what finds no room is read anew": mutant(
        "            self._unkept[release.plan_id] = release\n", "", DISKS
    ),
    "a site that starts on a full disk ends": mutant(
        "            reminders.say(FULL)\n        pause(ROOM_SECONDS)\n",
        "            raise\n        pause(ROOM_SECONDS)\n",
        DISKS,
    ),
    "a shared account is not charged first": mutant(
        "        self.shared.spend(charge)\n        try:\n", "        try:\n", SHARED
    ),
    "a refused charge stays in the shared account": mutant(
        "            self.shared.void(charge)\n            raise\n", "            raise\n", SHARED
    ),
    "a certificate of the future is taken": mutant(
        "        if not _is_valid(renewed, now):\n", "        if False:\n", CLOCKS
    ),
    # --- an analyst ---
    "an interrupted question is asked under a new key": mutant(
        "nonce=fresh_nonce() if fresh else nonce, errors",
        "nonce=fresh_nonce(), errors",
        "tests/analyst/asking/test_client.py",
    ),
    "a reply that is late ends the question": mutant(
        "            except (PeerUnreachable, LedgerBusy, DeadlinePassed):\n",
        "            except (PeerUnreachable, LedgerBusy):\n",
        "tests/analyst/link/test_retrying.py",
    ),
}  # fmt: skip
