package audit_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

// What somebody typed can neither fill the log nor forge a line of it.
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
			audit.Event{Kind: audit.SignIn, User: tt.typed}.Log(t.Context(), slogger)
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
		{audit.Event{Kind: audit.Token}, slog.LevelInfo},
		{audit.Event{Kind: audit.Token, Err: refusal}, slog.LevelWarn},
		{audit.Event{Kind: audit.Lockout}, slog.LevelWarn},
		{audit.Event{Kind: audit.Token, Err: context.DeadlineExceeded}, slog.LevelError},
	} {
		if got := tt.event.Level(); got != tt.want {
			t.Errorf("%+v: %v, want %v", tt.event, got, tt.want)
		}
	}
}
