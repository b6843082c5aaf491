package keyring

import (
	"bytes"
	"encoding/base64"
	"errors"
	"strings"
	"testing"
	"time"
)

func TestNewSharedKeys(t *testing.T) {
	t.Parallel()
	random := bytes.Repeat([]byte{0xfb}, 32) // contains both characters in which the two base64 alphabets differ
	for name, tt := range map[string]struct {
		secret string
		good   bool
	}{
		"as the command makes it": {base64.StdEncoding.EncodeToString(random), true},
		"of a URL":                {base64.RawURLEncoding.EncodeToString(random), true},
		"longer":                  {base64.StdEncoding.EncodeToString(bytes.Repeat(random, 2)), true},
		"with a line end":         {base64.StdEncoding.EncodeToString(random) + "\n", true},
		"too short":               {base64.StdEncoding.EncodeToString(random[1:]), false},
		"empty":                   {"", false},
		"a sentence":              {"correct horse battery staple is no base64 at all!", false},
	} {
		if _, err := NewSharedKeys("x", tt.secret); (err == nil) != tt.good || err != nil && !strings.Contains(err.Error(), "openssl rand -base64 32") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := NewSharedKeys("x"); err == nil {
		t.Error("no secret: accepted")
	}
}

// Every gateway can unseal with a shared key, at any position in its list, if the purpose and binding are the same and maxAge
// is not exceeded.
func TestSharedKeys(t *testing.T) {
	t.Parallel()
	secret := func(letter string) string {
		return base64.StdEncoding.EncodeToString([]byte(strings.Repeat(letter, 32)))
	}
	made := func(purpose string, letters ...string) SharedKeys {
		var secrets []string
		for _, letter := range letters {
			secrets = append(secrets, secret(letter))
		}
		keys, err := NewSharedKeys(purpose, secrets...)
		if err != nil {
			t.Fatal(err)
		}
		return keys
	}
	sealed := made("links", "a").Seal("text", "alice")
	for name, tt := range map[string]struct {
		keys    SharedKeys
		binding string
		opens   bool
	}{
		"the same":         {made("links", "a"), "alice", true},
		"a new one before": {made("links", "b", "a"), "alice", true},
		"given up":         {made("links", "b"), "alice", false},
		"another purpose":  {made("signing keys", "a"), "alice", false},
		"for another user": {made("links", "a"), "bob", false},
	} {
		if text, err := tt.keys.Unseal(sealed, tt.binding, time.Hour); (text == "text") != tt.opens || !tt.opens && !errors.Is(err, ErrUnsealFailed) {
			t.Errorf("%s: %q, %v", name, text, err)
		}
	}
}
