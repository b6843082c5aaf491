package caddymodule

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
)

// What fhir-convert prints can be loaded, and people keep their passwords.
func TestConvertKeycloak(t *testing.T) {
	t.Parallel()
	var converted bytes.Buffer
	if err := convertKeycloak(&converted, "internal/keycloakrealm/testdata/general.json", "https://fhir.hospital.example"); err != nil {
		t.Fatal(err)
	}
	adapter := caddyfile.Adapter{ServerType: httpcaddyfile.ServerType{}}
	adapted, _, err := adapter.Adapt(converted.Bytes(), nil)
	if err != nil {
		t.Fatalf("%v\n%s", err, &converted)
	}
	var config struct {
		Apps struct{ FHIR App } `json:"apps"`
	}
	if err := json.Unmarshal(adapted, &config); err != nil {
		t.Fatal(err)
	}
	app := config.Apps.FHIR
	if len(app.Users) != 2 || len(app.Clients) != 3 {
		t.Fatalf("%d users, %d clients", len(app.Users), len(app.Clients))
	}
	for _, user := range app.Users {
		if same, err := (passwords{}).Compare([]byte(user.PasswordHash), []byte("pw")); !same || err != nil {
			t.Errorf("password of %s: %v, %v", user.Name, same, err)
		}
		if same, _ := (passwords{}).Compare([]byte(user.PasswordHash), []byte("pw2")); same {
			t.Errorf("any password of %s", user.Name)
		}
	}
}

func TestConvertKeycloakRefuses(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, file, issuer string }{
		{"no issuer", "internal/keycloakrealm/testdata/general.json", ""},
		{"no file", "internal/keycloakrealm/testdata/none.json", "https://fhir.hospital.example"},
	} {
		if err := convertKeycloak(new(bytes.Buffer), tt.file, tt.issuer); err == nil {
			t.Error(tt.name)
		}
	}
}
