package store_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

type record struct {
	Name string `json:"name,omitempty"`
}

func TestJSON(t *testing.T) {
	for _, r := range []record{{}, {"a"}} {
		value, err := store.ToJSON(r)
		if err != nil || !strings.HasPrefix(string(value), `{"v":1`) {
			t.Fatalf("%s, %v", value, err)
		}
		if got, err := store.FromJSON[record](value); err != nil || *got != r {
			t.Errorf("%s: %+v, %v", value, got, err)
		}
	}
}

func TestVersions(t *testing.T) {
	for _, text := range []string{`{"name":"{\"v\":9}"}`, `{"v":0,"name":"a"}`, `{"v":1}`} {
		if got, err := store.FromJSON[record]([]byte(text)); got == nil || err != nil {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{`{"v":2}`, `{"v":12,"name":"a"}`, `{"v":99999999999999999999}`, `{"v":"1"}`, `{"v":-1}`} {
		if got, err := store.FromJSON[record]([]byte(text)); !errors.Is(err, store.ErrNewerVersion) {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
	if got, err := store.FromJSON[record]([]byte(`{"name":"a","more":[1]}`)); err != nil || got.Name != "a" {
		t.Errorf("a later member: %+v, %v", got, err)
	}
}
