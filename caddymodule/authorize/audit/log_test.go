package audit_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

// eventCounts is a slog.Handler that counts written and suppressed events.
type eventCounts struct {
	slog.Handler
	mu               sync.Mutex
	records          int
	written, omitted map[string]int // counts by kind and address
}

func countEvents() (*audit.Log, *eventCounts) {
	c := &eventCounts{Handler: slog.DiscardHandler, written: map[string]int{}, omitted: map[string]int{}}
	return audit.NewLog(slog.New(c)), c
}

func (*eventCounts) Enabled(context.Context, slog.Level) bool { return true }

func (c *eventCounts) Handle(_ context.Context, r slog.Record) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.records++
	fields := map[string]slog.Value{"address": slog.StringValue("")}
	r.Attrs(func(a slog.Attr) bool { fields[a.Key] = a.Value; return true })
	source := fields["kind"].String() + " " + fields["address"].String()
	if n, ok := fields["left_out"]; ok {
		if r.Level != slog.LevelWarn || fields["outcome"].String() != "left_out" {
			return errors.New("not a record of omitted events")
		}
		c.omitted[source] += int(n.Int64())
	} else {
		c.written[source]++
	}
	return nil
}

// read returns the current counts. Timers may still log afterwards.
func (c *eventCounts) read() (records int, written, omitted map[string]int) {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.records, maps.Clone(c.written), maps.Clone(c.omitted)
}

func sum(counts map[string]int) (n int) {
	for _, of := range counts {
		n += of
	}
	return n
}

func anonymous(kind, address string) audit.Event {
	return audit.Event{Kind: kind, Address: address, Anonymous: true, Err: errors.New("refused")}
}

// Per kind and address, 60 anonymous events per minute are written. The others are counted and summarized.
func TestEventLog(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log, counts := countEvents()
		for range 1000 {
			log.Record(t.Context(), anonymous("token", "192.0.2.1"))
			log.Record(t.Context(), anonymous("sign-in", "192.0.2.1"))
		}
		log.Record(t.Context(), anonymous("token", "192.0.2.2"))
		time.Sleep(59 * time.Second)
		_, written, omitted := counts.read()
		if written["token 192.0.2.1"] != 60 || written["sign-in 192.0.2.1"] != 60 || written["token 192.0.2.2"] != 1 || len(omitted) != 0 {
			t.Errorf("written %v, omitted %v", written, omitted)
		}
		time.Sleep(2 * time.Second)
		_, _, omitted = counts.read()
		if omitted["token 192.0.2.1"] != 940 || omitted["sign-in 192.0.2.1"] != 940 || sum(omitted) != 2*940 {
			t.Errorf("omitted %v", omitted)
		}
		log.Record(t.Context(), anonymous("token", "192.0.2.1"))
		time.Sleep(time.Hour)
		_, written, omitted = counts.read()
		if written["token 192.0.2.1"] != 61 || sum(omitted) != 2*940 {
			t.Errorf("a minute later: written %v, omitted %v", written, omitted)
		}
	})
}

// Floods of anonymous events do not suppress successes or events of authenticated senders.
func TestEventLogKeepsAuthenticatedEvents(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log, counts := countEvents()
		for range 2000 {
			log.Record(t.Context(), anonymous("token", "192.0.2.1"))
			log.Record(t.Context(), audit.Event{Kind: "sign-in", Address: "192.0.2.1", User: "alice"})
			log.Record(t.Context(), audit.Event{Kind: "lockout", Address: "192.0.2.1", User: "alice", Err: errors.New("must wait")})
		}
		_, written, _ := counts.read()
		if written["sign-in 192.0.2.1"] != 2000 || written["lockout 192.0.2.1"] != 2000 {
			t.Errorf("written %v", written)
		}
	})
}

// A flood of events of one kind does not suppress another kind, e.g. lockouts.
func TestEventLogCountsByKind(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log, counts := countEvents()
		for i := range 2000 {
			log.Record(t.Context(), anonymous("token", fmt.Sprintf("10.1.%d.%d", i/256, i%256)))
		}
		for range 60 {
			log.Record(t.Context(), anonymous("lockout", "192.0.2.1"))
		}
		_, written, _ := counts.read()
		if sum(written) != 300+60 {
			t.Errorf("written %v", written)
		}
	})
}

// IPv6 addresses are counted by network, because an attacker has many addresses.
func TestEventLogCountsByNetwork(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log, counts := countEvents()
		for i := range 1000 {
			log.Record(t.Context(), anonymous("token", fmt.Sprintf("2001:db8::%x", i)))
		}
		time.Sleep(time.Hour)
		_, written, omitted := counts.read()
		if sum(written) != 60 || omitted["token 2001:db8::/64"] != 940 {
			t.Errorf("written %v, omitted %v", written, omitted)
		}
	})
}

// The number of records per minute is limited, no matter how many addresses a flood uses. Every event is either written or
// counted.
func TestEventLogOfManyAddresses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log, counts := countEvents()
		const networks, each = 5000, 20
		for range each {
			for i := range networks {
				log.Record(t.Context(), anonymous("token", fmt.Sprintf("10.1.%d.%d", i/256, i%256)))
			}
		}
		_, written, _ := counts.read()
		if sum(written) != 300 {
			t.Errorf("%d written one by one", sum(written))
		}
		time.Sleep(time.Hour)
		records, written, omitted := counts.read()
		if records > 1400 || sum(written)+sum(omitted) != networks*each || omitted["token "] == 0 {
			t.Errorf("%d records; %d written, %d omitted", records, sum(written), sum(omitted))
		}
	})
}

// Flush writes every count exactly once.
func TestEventLogFlush(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log, counts := countEvents()
		for range 100 {
			log.Record(t.Context(), anonymous("token", "192.0.2.1"))
		}
		log.Flush()
		_, _, omitted := counts.read()
		if omitted["token 192.0.2.1"] != 40 {
			t.Errorf("omitted %v", omitted)
		}
		time.Sleep(time.Hour)
		_, _, omitted = counts.read()
		if sum(omitted) != 40 {
			t.Errorf("omitted events were logged twice: %v", omitted)
		}
	})
}

// User input can neither flood the log nor forge log lines.
func TestEventLogIsBounded(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, typed string }{
		{"very long", strings.Repeat("x", 1<<20)},
		{"cut within a character", strings.Repeat("é", 1000) + "x"},
		{"cut within another", "x" + strings.Repeat("é", 1000)},
		{"cut within an emoji", "xx" + strings.Repeat("😀", 1000)},
		{"line ends", "a\r\nlevel=INFO msg=sign-in user=root\u2028b\x00\x1b[2J"},
		{"right to left", "\u202egnp.exe"},
		{"not UTF-8", strings.Repeat("\xff\xfe", 1000)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var log bytes.Buffer
			slogger := slog.New(slog.NewTextHandler(&log, nil))
			audit.Event{Kind: audit.KindSignIn, User: tt.typed}.Log(t.Context(), slogger)
			if line := log.String(); strings.Count(line, "\n") != 1 || len(line) > 2048 || !utf8.ValidString(line) {
				t.Errorf("%d bytes: %q", len(line), line)
			}
			if i := strings.IndexFunc(strings.TrimSpace(log.String()), func(r rune) bool { return !unicode.IsGraphic(r) }); i >= 0 {
				t.Errorf("character at %d of %q", i, &log)
			}
			if strings.Contains(log.String(), "\\u202e") || strings.Contains(log.String(), `\n`) {
				t.Errorf("escaped rather than replaced: %q", &log)
			}
		})
	}
}

func TestEventLevel(t *testing.T) {
	t.Parallel()
	refusal := &oauth2.Error{Code: "invalid_grant"}
	for _, tt := range []struct {
		event audit.Event
		want  slog.Level
	}{
		{audit.Event{Kind: audit.KindToken}, slog.LevelInfo},
		{audit.Event{Kind: audit.KindToken, Err: refusal}, slog.LevelWarn},
		{audit.Event{Kind: audit.KindLockout}, slog.LevelWarn},
		{audit.Event{Kind: audit.KindToken, Err: context.DeadlineExceeded}, slog.LevelError},
	} {
		if got := tt.event.Level(); got != tt.want {
			t.Errorf("%+v: %v, want %v", tt.event, got, tt.want)
		}
	}
}
