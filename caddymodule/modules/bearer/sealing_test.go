package bearer

import (
	"bytes"
	"encoding/base64"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/enforce"
)

// What a guard seals without the fhir app opens for whom it was sealed, in its time.
func TestProcessSealing(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		ahead, wait time.Duration // of the clock that sealed; until it is opened
		binding     string
		opens       bool
	}{
		"at once":                {0, 0, "alice", true},
		"by somebody else":       {0, 0, "mallory", false},
		"just in time":           {0, time.Hour, "alice", true},
		"too late":               {0, time.Hour + time.Second, "alice", false},
		"by a clock a bit ahead": {time.Minute, 0, "alice", true},
		"by a clock far ahead":   {time.Hour, 0, "alice", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sealing, err := processSealing()
			if err != nil {
				t.Fatal(err)
			}
			var sealed string
			synctest.Test(t, func(t *testing.T) { // each bubble's clock begins at the same time
				time.Sleep(tt.ahead)
				var err error
				if sealed, err = sealing.Seal(t.Context(), "text", "alice"); err != nil {
					t.Fatal(err)
				}
			})
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(tt.wait)
				text, err := sealing.Unseal(t.Context(), sealed, tt.binding, time.Hour)
				if opens := err == nil && text == "text"; opens != tt.opens {
					t.Errorf("%q, %v", text, err)
				}
			})
		})
	}
}

// Gateways without the fhir app open each other's links if they are given the same key.
func TestSealKey(t *testing.T) {
	t.Setenv("SEAL_KEY", sealKey)
	ours, err := sealingWith(nil, "{env.SEAL_KEY}")
	if err != nil {
		t.Fatal(err)
	}
	sealed, err := ours.Seal(t.Context(), "text", "alice")
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		keys  []string
		opens bool
	}{
		"the same key":      {[]string{sealKey}, true},
		"a new one before":  {[]string{otherSealKey, sealKey}, true},
		"another key":       {[]string{otherSealKey}, false},
		"the process's own": {nil, false},
	} {
		other, err := sealingWith(nil, tt.keys...)
		if err != nil {
			t.Fatal(err)
		}
		if text, _ := other.Unseal(t.Context(), sealed, "alice", time.Hour); (text == "text") != tt.opens {
			t.Errorf("%s: %q", name, text)
		}
	}
	for name, tt := range map[string]struct {
		app       App
		key, want string
	}{
		"too short":    {nil, "c2hvcnQ=", "seal_key: must be base64"},
		"with the app": {appOfTest{}, sealKey, "give that store_key"},
	} {
		if _, err := sealingWith(tt.app, tt.key); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func sealingWith(app App, keys ...string) (enforce.Sealing, error) { return newSealing(app, keys) }

// appOfTest stands for the fhir app where only its presence matters.
type appOfTest struct{ App }

// Keys that gateways are given.
var (
	sealKey      = base64.StdEncoding.EncodeToString(bytes.Repeat([]byte("a"), 32))
	otherSealKey = base64.StdEncoding.EncodeToString(bytes.Repeat([]byte("b"), 32))
)
