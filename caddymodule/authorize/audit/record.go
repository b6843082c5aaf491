package audit

import (
	"context"
	"log/slog"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxLogged bounds one field of a logged event, in bytes: part of it is typed by
// whoever likes to, and a log must not be theirs to fill.
const maxLogged = 256

// Level is Info for what succeeded, Warn for refusals and lockouts, and Error for
// what failed through no fault of the one who asked.
func (e Event) Level() slog.Level {
	switch {
	case e.Outcome() == "server_error":
		return slog.LevelError
	case e.Err != nil || e.Kind == Lockout || e.LeftOut > 0:
		return slog.LevelWarn
	}
	return slog.LevelInfo
}

// Log writes the event as one record, with its kind as the message. Fields that
// are empty are left out.
func (e Event) Log(ctx context.Context, logger *slog.Logger) {
	if !logger.Enabled(ctx, e.Level()) {
		return
	}
	reason := e.Reason
	if e.Err != nil {
		reason = e.Err.Error()
	}
	attributes := make([]slog.Attr, 0, 10)
	for _, field := range []struct{ name, value string }{
		{"kind", e.Kind}, {"outcome", e.Outcome()}, {"user", e.User}, {"client_id", e.ClientID}, {"scope", e.Scope},
		{"grant", e.Grant}, {"provider", e.Provider}, {"address", e.Address}, {"reason", reason},
	} {
		if field.value != "" {
			attributes = append(attributes, slog.String(field.name, loggable(field.value)))
		}
	}
	if e.LeftOut > 0 {
		attributes = append(attributes, slog.Int("left_out", e.LeftOut))
	}
	logger.LogAttrs(ctx, e.Level(), e.Kind, attributes...)
}

// loggable cuts a text to what a log line has room for, and replaces what could
// end the line, or make a terminal show another one.
func loggable(text string) string {
	const cut = "…"
	if len(text) > maxLogged {
		text = text[:maxLogged]
		for !utf8.ValidString(text[max(0, len(text)-utf8.UTFMax):]) && len(text) > maxLogged-utf8.UTFMax {
			text = text[:len(text)-1]
		}
		text += cut
	}
	return strings.Map(func(r rune) rune {
		if !unicode.IsGraphic(r) {
			return utf8.RuneError
		}
		return r
	}, text)
}
