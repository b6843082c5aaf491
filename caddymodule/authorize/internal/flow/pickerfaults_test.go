package flow_test

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/launch"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/servertest"
)

// slowHospital takes ten seconds for each answer.
type slowHospital struct{ servertest.FHIRServer }

func (h *slowHospital) Get(ctx context.Context, by launch.Reader, path string, query url.Values) ([]byte, error) {
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(10 * time.Second):
		return h.FHIRServer.Get(ctx, by, path, query)
	}
}

// A page ends in time, however many patients a slow FHIR server is asked for.
func TestPickWhileSlow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := servertest.NewLaunching(t, new(slowHospital), "Person/carer", nil)
		r := b.SignIn(servertest.Request(url.Values{"scope": {"launch/patient"}}), "alice", "right")
		start := time.Now()
		page := b.Get(r.Header.Get("Location"))
		if took := time.Since(start); page.StatusCode != http.StatusServiceUnavailable || took > 30*time.Second {
			t.Errorf("status %d after %s", page.StatusCode, took)
		}
	})
}

// malformedHospital has a patient whose record is no FHIR, before others.
type malformedHospital struct{ servertest.FHIRServer }

func (h *malformedHospital) Get(ctx context.Context, by launch.Reader, path string, query url.Values) ([]byte, error) {
	body, err := h.FHIRServer.Get(ctx, by, path, query)
	const wrong = `"entry":[null,{"resource":null},{"resource":{"resourceType":"Patient","id":"eve","birthDate":1990,"name":{}}},`
	return []byte(strings.Replace(string(body), `"entry":[`, wrong, 1)), err
}

// One record that cannot be read keeps nobody from the others.
func TestPickBesideMalformedRecord(t *testing.T) {
	t.Parallel()
	b := servertest.NewLaunching(t, new(malformedHospital), "Practitioner/alice", nil)
	page, _ := b.OpenForm(b.SignIn(servertest.Request(url.Values{"scope": {"launch/patient"}}), "alice", "right"))
	if !strings.Contains(page, "Ada Lovelace") || strings.Contains(page, `value="eve"`) {
		t.Errorf("%s", page)
	}
}
