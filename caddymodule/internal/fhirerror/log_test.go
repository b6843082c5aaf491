package fhirerror

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// An outage does not flood the log: failures of each kind are logged individually up to a limit, then only counted.
func TestFailureLogIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var text bytes.Buffer
		log := NewLog(slog.New(slog.NewTextHandler(&text, nil)))
		request := func(status int, cause error) {
			r := httptest.NewRequest(http.MethodGet, "/fhir/R4/Patient?name=secret", nil)
			r = caddyhttp.PrepareRequest(r, caddy.NewReplacer(), httptest.NewRecorder(), nil)
			for range 3 { // several handlers may log the same error
				log.LogRequestError(r, caddyhttp.Error(status, cause))
			}
		}
		for range 100 {
			request(http.StatusBadGateway, errors.New("refused"))
		}
		request(http.StatusServiceUnavailable, errors.New("rare"))
		request(http.StatusNotFound, errors.New("no failure"))
		request(http.StatusServiceUnavailable, fmt.Errorf("verification: %w", store.ErrUnavailable)) // the breaker logs this error
		got := text.String()
		if strings.Count(got, "\n") != maxLoggedFailures+1 || strings.Count(got, "refused") != maxLoggedFailures || strings.Count(got, "rare") != 1 || strings.Contains(got, "secret") {
			t.Error(got)
		}
		text.Reset()
		time.Sleep(failureWindowDuration + 1)
		synctest.Wait()
		if got := text.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "left_out=90") {
			t.Error(got)
		}
		text.Reset()
		request(http.StatusBadGateway, errors.New("again"))
		if !strings.Contains(text.String(), "again") {
			t.Error("not logged in the next minute")
		}
		time.Sleep(failureWindowDuration + 1)
		for n := range 2 * maxFailureKinds {
			log.write(log.logger, string(rune('a'+n)), "x")
		}
		if len(log.windows) > maxFailureKinds {
			t.Errorf("%d kinds", len(log.windows))
		}
		time.Sleep(failureWindowDuration + 1)
	})
}

// Errors logged by a core package are limited too; records at other levels are not.
func TestLimitFailures(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var text bytes.Buffer
		log := LimitFailures(slog.New(slog.NewTextHandler(&text, nil))).With("with", "attribute").WithGroup("group")
		for range 3 * maxLoggedFailures {
			log.Error("store down", "path", "/oauth2/token")
			log.Info("refused")
			log.Error("not stored", "error", fmt.Errorf("x: %w", store.ErrUnavailable)) // the breaker logs this error
		}
		got := text.String()
		if strings.Count(got, "store down") != maxLoggedFailures || strings.Count(got, "with=attribute") != 4*maxLoggedFailures || strings.Count(got, "group.path") != maxLoggedFailures || strings.Contains(got, "not stored") {
			t.Error(got)
		}
		text.Reset()
		time.Sleep(failureWindowDuration + 1)
		synctest.Wait()
		if got := text.String(); !strings.Contains(got, "left_out=20") {
			t.Error(got)
		}
	})
}

// Requests that fail because the client disconnected are not logged. Requests that the gateway canceled are.
func TestDisconnectedClientIsNoFailure(t *testing.T) {
	t.Parallel()
	for want, leave := range []bool{true, false} {
		var text bytes.Buffer
		ctx, end := context.WithCancel(t.Context())
		r := caddyhttp.PrepareRequest(httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil), caddy.NewReplacer(), httptest.NewRecorder(), nil)
		if leave {
			end()
		}
		NewLog(slog.New(slog.NewTextHandler(&text, nil))).LogRequestError(r, caddyhttp.Error(http.StatusServiceUnavailable, context.Canceled))
		end()
		if strings.Count(text.String(), "\n") != want {
			t.Errorf("left: %v; logged %q", leave, text.String())
		}
	}
}
