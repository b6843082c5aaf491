package totp

import (
	"strings"
	"testing"
	"time"
)

// The codes are equal to the last six of the eight digits in the test vectors for SHA-1 in RFC 6238, Appendix B.
func TestVectors(t *testing.T) {
	t.Parallel()
	key := []byte("12345678901234567890")
	for seconds, want := range map[int64]string{
		59: "94287082", 1111111109: "07081804", 1111111111: "14050471",
		1234567890: "89005924", 2000000000: "69279037", 20000000000: "65353130",
	} {
		if got := Code(key, seconds/30); got != want[2:] {
			t.Errorf("at %d: %s, want %s", seconds, got, want[2:])
		}
	}
}

// A code is valid in its time step and in the adjacent ones.
func TestSkew(t *testing.T) {
	t.Parallel()
	key, now := []byte("12345678901234567890"), time.Unix(1111111111, 0)
	step := now.Unix() / 30
	for away := int64(-3); away <= 3; away++ {
		got, ok := MatchingStep(key, Code(key, step+away), now)
		if want := away >= -1 && away <= 1; ok != want || ok && got != step+away {
			t.Errorf("%d steps away: %t, step %d", away, ok, got-step)
		}
	}
	for _, code := range []string{"", "12345", "1234567", "abcdef", Code(key, step)[:5], Code(key, step) + "0"} {
		if _, ok := MatchingStep(key, code, now); ok {
			t.Errorf("%q counts", code)
		}
	}
}

func TestCheckSecret(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, secret string
		ok           bool
	}{
		{"ours", NewSecret(), true},
		{"the least", "GEZDGNBVGY3TQOJQGEZDGNBVGY", true},
		{"in groups, lower case and padded", "gezd gnbv-gy3t qojq gezd gnbv gy======", true},
		{"too short", "GEZDGNBVGY3TQOJQ", false},
		{"no base32", "0189GEZDGNBVGY3TQOJQGEZDGNBVGY3T", false},
		{"nothing", "", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := CheckSecret(tt.secret)
			if (err == nil) != tt.ok {
				t.Errorf("error %v", err)
			}
			if err != nil && tt.secret != "" && strings.Contains(err.Error(), tt.secret) {
				t.Errorf("the error contains the secret: %v", err)
			}
		})
	}
}

func TestTOTPAddress(t *testing.T) {
	t.Parallel()
	want := "otpauth://totp/General%20Hospital:alice?issuer=General%20Hospital&secret=ABC"
	if got := URI("General Hospital", "alice", "ABC"); got != want {
		t.Errorf("got %s", got)
	}
}
