package caddymodule

import (
	"bytes"
	"errors"
	"net/http"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddy-fhir/caddy-fhir/terminology"
	"github.com/caddy-fhir/caddy-fhir/terminology/cache"
)

// askOthers gives the next handler's answer to what is not known here, or not
// wholly.
func askOthers(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler, here error) error {
	if errors.Is(here, terminology.ErrUnknown) {
		return askForUnknown(w, r, next, here)
	}
	return askForIncomplete(w, r, next, here)
}

// askForUnknown gives the next handler's answer, whatever it is: it alone can
// know. Where there is no next handler nothing is written, and the value set is
// unknown for good.
func askForUnknown(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler, here error) error {
	if answered, err := askFirst(w, r, next); answered || err != nil {
		metrics.expansion(expandedNext)
		return err
	}
	return failure(here)
}

// askFirst gives the next handler's answer, and reports whether there is one.
func askFirst(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) (answered bool, err error) {
	answer := caddyhttp.NewResponseRecorder(w, nil, nil)
	err = askNext(answer, r, next)
	return answer.Status() != 0, err
}

// askForIncomplete gives the next handler's answer if it is an expansion. If it
// is not, what is missing here is the more useful thing to say.
func askForIncomplete(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler, here error) error {
	header := w.Header().Clone()
	refused := func(status int, _ http.Header) bool { return status >= http.StatusBadRequest }
	answer := caddyhttp.NewResponseRecorder(w, new(bytes.Buffer), refused)
	err := askNext(answer, r, next)
	if err == nil && answer.Status() != 0 && !answer.Buffered() {
		metrics.expansion(expandedNext)
		return nil
	}
	clear(w.Header()) // of what the refused answer left there
	for name, values := range header {
		w.Header()[name] = values
	}
	return failure(here)
}

// isStanding reports whether an error has an answer that was made here, which stands
// where others have none.
func isStanding(err error) bool {
	var here *terminology.Error
	return errors.As(err, &here) && here.Provisional != nil
}

// standing is that answer, to be kept.
func standing(here *terminology.Provisional) *cache.Answer {
	return &cache.Answer{Status: http.StatusOK, Header: http.Header{"Content-Type": {here.ContentType}}, Body: here.Body, Negative: true}
}

// writeStanding writes that answer, where there is one in place of an error. It may be
// another one any time.
func writeStanding(w http.ResponseWriter, r *http.Request, err error) error {
	var here *terminology.Error
	if !errors.As(err, &here) || here.Provisional == nil {
		return err
	}
	w.Header()["Cache-Control"] = privateNoCache
	return told(writeAnswer(w, r, standing(here.Provisional), privateNoCache))
}

// privateNoCache is the Cache-Control of what may be another one any time.
var privateNoCache = []string{"private, no-cache"}

// askNext measures how long the next handler takes.
func askNext(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	start := time.Now()
	defer func() { metrics.next.Observe(time.Since(start).Seconds()) }()
	return next.ServeHTTP(w, r)
}
