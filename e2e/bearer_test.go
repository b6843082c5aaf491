package e2e

import (
	"encoding/json"
	"net/http"
	"regexp"
	"strings"
	"testing"
)

// Requests without a token are rejected. The challenge in the response describes how to get a token.
func TestNoToken(t *testing.T) {
	token := example.serviceToken(t)
	parts := strings.Split(token, ".")
	tests := []struct {
		name, token, err string
	}{
		{"none", "", ""},
		{"nonsense", "nonsense", "invalid_token"},
		{"no signature", parts[0] + "." + parts[1] + ".", "invalid_token"},
		{"another's signature", parts[0] + "." + parts[1] + "." + strings.Repeat("A", len(parts[2])), "invalid_token"},
		{"an ID token", idToken(t), "invalid_token"},
	}
	for _, test := range tests {
		for _, path := range []string{"ValueSet/$expand?url=" + gender, "Patient", "Patient/1"} {
			t.Run(test.name+", "+path, func(t *testing.T) {
				refused := example.fhir(t, test.token, http.MethodGet, path, "").is(t, http.StatusUnauthorized)
				refused.isOutcome(t)
				challenge := refused.header.Get("WWW-Authenticate")
				if !strings.HasPrefix(challenge, "Bearer ") {
					t.Errorf("WWW-Authenticate %q", challenge)
				}
				if test.err != "" && !strings.Contains(challenge, `error="`+test.err+`"`) {
					t.Errorf("WWW-Authenticate %q, want error %s", challenge, test.err)
				}
				// RFC 6750 §3.1: the challenge has no error code if the request contained no token.
				if test.err == "" && strings.Contains(challenge, "error=") {
					t.Errorf("WWW-Authenticate %q, want no error", challenge)
				}
			})
		}
	}
}

func idToken(t *testing.T) string {
	t.Helper()
	raw, ok := example.userToken(t, "openid").Extra("id_token").(string)
	if !ok {
		t.Fatal("no ID token")
	}
	return raw
}

// mayWrite grants the example's app write scopes in addition to its read scopes.
var mayWrite = []string{"patient/*.rs user/*.rs demo.read", "patient/*.rs user/*.cruds demo.read"}

// Clients can read and write FHIR resources through the gateway.
func TestFHIR(t *testing.T) {
	g := startTestGateway(t, "fhir", fhirServer.address, mayWrite...)
	token := g.userToken(t, "openid", "user/*.cruds").AccessToken
	const adams = `{"resourceType":"Patient","name":[{"family":"Adams","given":["Eve"]}],"gender":"female"}`

	t.Run("no token, no resource", func(t *testing.T) {
		g.fhir(t, "", http.MethodPost, "Patient", adams).is(t, http.StatusUnauthorized).isOutcome(t)
	})
	var patient struct{ ID string }
	created := g.fhir(t, token, http.MethodPost, "Patient", adams).is(t, http.StatusCreated)
	created.decode(t, &patient)
	t.Run("read", func(t *testing.T) {
		read := g.fhir(t, token, http.MethodGet, "Patient/"+patient.ID, "").is(t, http.StatusOK)
		if read.header.Get("ETag") == "" {
			t.Error("no ETag")
		}
		var got struct{ Name []struct{ Family string } }
		read.decode(t, &got)
		if len(got.Name) != 1 || got.Name[0].Family != "Adams" {
			t.Errorf("got %s", read.body)
		}
	})
	t.Run("search", func(t *testing.T) {
		var bundle struct {
			Entry []struct{ Resource struct{ ID string } }
		}
		g.fhir(t, token, http.MethodGet, "Patient?family=Adams&gender=female", "").is(t, http.StatusOK).decode(t, &bundle)
		if len(bundle.Entry) != 1 || bundle.Entry[0].Resource.ID != patient.ID {
			t.Errorf("got %+v, want Patient/%s alone", bundle, patient.ID)
		}
	})
	t.Run("history", func(t *testing.T) {
		g.fhir(t, token, http.MethodGet, "Patient/"+patient.ID+"/_history", "").is(t, http.StatusOK)
	})
	t.Run("batch", func(t *testing.T) {
		batch, err := json.Marshal(map[string]any{
			"resourceType": "Bundle", "type": "batch",
			"entry": []any{map[string]any{"request": map[string]string{"method": "GET", "url": "Patient/" + patient.ID}}},
		})
		if err != nil {
			t.Fatal(err)
		}
		r := newRequest(t, http.MethodPost, g.issuer+"/fhir/R4/", string(batch))
		r.Header.Set("Content-Type", "application/fhir+json")
		r.Header.Set("Authorization", "Bearer "+token)
		answer := send(t, g.client, r).is(t, http.StatusOK)
		if !strings.Contains(string(answer.body), "Adams") {
			t.Errorf("got %s", answer.body)
		}
	})
	t.Run("the backend's own errors pass", func(t *testing.T) {
		g.fhir(t, token, http.MethodGet, "Patient/nobody", "").is(t, http.StatusNotFound).isOutcome(t)
	})
}

// Identity headers sent by a client don't reach the backend, which might trust them. Neither does the token, which the backend
// could use elsewhere.
func TestIdentityHeaders(t *testing.T) {
	r := newRequest(t, http.MethodGet, example.issuer+"/fhir/R4/Patient?name=headers", "")
	r.Header.Set("Authorization", "Bearer "+example.serviceToken(t))
	r.Header.Set("X-Request-Id", "yes")
	forged := []string{
		"Remote-User", "X-Forwarded-User", "X-Remote-User", "X-Auth-Request-User", "X-Auth-Request-Email",
		"X-Forwarded-Roles", "X-Token-Subject", "X-Pomerium-Claim-Email", "Cf-Access-Authenticated-User-Email", "Oidc-Claim-Sub",
		"X-SSL-Client-Cert", "X-Patient-Id", "X-Consumer-Username", "X-MS-CLIENT-PRINCIPAL",
	}
	for _, name := range forged {
		r.Header.Set(name, "mallory")
	}
	send(t, example.client, r).is(t, http.StatusOK)
	last := fhirServer.last(t)
	if !strings.Contains(last.URL, "name=headers") || last.Headers["x-request-id"] != "yes" {
		t.Fatalf("the backend's last request is another: %+v", last)
	}
	for _, name := range append(forged, "Authorization") {
		if value, there := last.Headers[strings.ToLower(name)]; there {
			t.Errorf("the backend got %s: %s", name, value)
		}
	}
}

// If the backend is unavailable, the client gets an OperationOutcome and the error is logged.
func TestBackendStopped(t *testing.T) {
	own, err := startBackend("backend-stopped")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(own.process.stop)
	g := startTestGateway(t, "gateway-backend-stopped", own.address)
	token := g.serviceToken(t)
	g.fhir(t, token, http.MethodGet, "Patient", "").is(t, http.StatusOK)
	own.process.stop()

	g.fhir(t, token, http.MethodGet, "Patient", "").is(t, http.StatusBadGateway).isOutcome(t)
	g.expand(t, token, "https://example.org/ValueSet/nowhere").is(t, http.StatusBadGateway).isOutcome(t)
	g.expand(t, token, gender).is(t, http.StatusOK)
	line := regexp.MustCompile(`"level":"error".*"status":502.*"path":"/fhir/R4/Patient".*connection refused`)
	if log := g.process.tail(); !line.MatchString(log) {
		t.Errorf("no log line contains the reason: %s", log)
	}
}
