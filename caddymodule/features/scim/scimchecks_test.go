package scim_test

import (
	"encoding/base64"
	"net/http"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/providertest"
)

// A User that is created inactive ends what its person has, and one that is created active ends nothing.
func TestSCIMCreate(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		`{"userName":"alice@hospital.example","active":false}`:                "nothing",
		`{"userName":"alice@hospital.example","active":"False"}`:              "nothing",
		`{"userName":"x","externalId":"248289761001","active":false}`:         "nothing",
		`{"userName":"alice@hospital.example","active":true}`:                 "all",
		`{"userName":"alice@hospital.example"}`:                               "all",
		`{"userName":"bob@hospital.example","externalId":"x","active":false}`: "all",
	} {
		t.Run(body, func(t *testing.T) {
			t.Parallel()
			s := authorizetest.NewFederated(t, providertest.Start(t, authorizetest.Named), withSCIM)
			alice := authorizetest.SignInFederated(t, s)
			if status, made := request(t, s, http.MethodPost, "/Users", body); status != http.StatusCreated {
				t.Errorf("%d %v", status, made)
			}
			if left := alice.Left(); left != want {
				t.Errorf("left: %s, want %s", left, want)
			}
		})
	}
}

// The id of a User is one that the server made: it has names, and the person or the time for which they were given.
func TestSCIMMadeUpID(t *testing.T) {
	t.Parallel()
	s := authorizetest.NewFederated(t, providertest.Start(t, authorizetest.Named), withSCIM)
	alice := authorizetest.SignInFederated(t, s)
	for _, text := range []string{
		`{"u":"alice@hospital.example"}`, `{"e":"248289761001"}`, `{"s":"248289761001"}`, `{"t":1}`, `{}`, `[]`, `{"u":"a\nb","t":1}`,
	} {
		if status, answer := request(t, s, http.MethodDelete, "/Users/"+base64.RawURLEncoding.EncodeToString([]byte(text)), ""); status != http.StatusNotFound {
			t.Errorf("%s: %d %v", text, status, answer)
		}
	}
	if left := alice.Left(); left != "all" {
		t.Errorf("left: %s", left)
	}
}

// The id of a User stays the person's who had the name when the id was given, not the one's who had the name before.
func TestSCIMNameOfAnotherBefore(t *testing.T) {
	t.Parallel()
	p := providertest.Start(t)
	st := staff{t, p, authorizetest.NewFederated(t, p, withSCIM)}
	st.signIn("zed", "alice")
	zed := st.signIn("zed", "zed")
	ann := st.signIn("ann", "alice")
	st.delete(st.create("alice"))
	if left := ann.Left(); left != "nothing" {
		t.Errorf("of who has the name: %s", left)
	}
	if left := zed.Left(); left != "all" {
		t.Errorf("of who had the name: %s", left)
	}
}
