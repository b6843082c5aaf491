package guard

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestCheckPath(t *testing.T) {
	t.Parallel()
	tests := []struct {
		target string
		ok     bool
	}{
		{"/fhir/R4", true},
		{"/fhir/R4/", true},
		{"/fhir/R4/Patient/1/_history/2?x=%2f..;", true},
		{"/fhir/R4/ValueSet/$expand", true},
		{"/fhir/R4/ValueSet/%24expand", true},
		{"/fhir/R4/Patient/a.b", true},
		{"/other/R4/x", true},
		{"/fhir/R4/../admin", false},
		{"/fhir/R4/..", false},
		{"/fhir/R4/./x", false},
		{"/fhir/R4/%2e%2e/admin", false},
		{"/fhir/R4/%252e%252e/admin", false},
		{"/fhir/R4/..;/admin", false},
		{"/fhir/R4/Patient;a=b", false},
		{"/fhir/R4/Patient//1", false},
		{"//fhir/R4/Patient", false},
		{"/fhir/R4/Patient%2F1", false},
		{"/fhir/R4%2fmetadata", false},
		{"/fhir/R4/..%5cadmin", false},
		{"/fhir/R4/Patient/%00", false},
		{"/fhir/R4/Patient/%0a", false},
		{"/fhir/R4/Patient/%ff", false},
		{"/FHIR/r4/Patient", false},
		{"/fhir/r4", false},
	}
	for _, tt := range tests {
		r := httptest.NewRequest(http.MethodGet, "http://x"+tt.target, nil)
		err := CheckPath(r, "/fhir/R4")
		if (err == nil) != tt.ok || err != nil && !errors.Is(err, ErrPath) {
			t.Errorf("%s: %v", tt.target, err)
		}
	}
}

func TestCheckMethod(t *testing.T) {
	t.Parallel()
	for method, ok := range map[string]bool{"GET": true, "PATCH": true, "OPTIONS": true, "TRACE": false, "CONNECT": false} {
		r := httptest.NewRequest("GET", "/fhir/R4/x", nil)
		r.Method = method
		var refused *Error
		if err := CheckPath(r, "/fhir/R4"); (err == nil) != ok || errors.As(err, &refused) && refused.Status != http.StatusMethodNotAllowed {
			t.Errorf("%s: %v", method, err)
		}
	}
}

func TestStripCookies(t *testing.T) {
	t.Parallel()
	tests := []struct {
		cookies []string
		want    []string
	}{
		{nil, nil},
		{[]string{"a=b"}, []string{"a=b"}},
		{[]string{"__Host-fhir-session=s; a=b"}, []string{"a=b"}},
		{[]string{"a=b; __Host-fhir-session=s", "__Host-fhir-away-x-0=y; c=d"}, []string{"a=b; c=d"}},
		{[]string{"__Host-fhir-session=s"}, nil},
		{[]string{" __Host-fhir-session=s ;;"}, nil},
	}
	for _, tt := range tests {
		h := http.Header{"Cookie": tt.cookies}
		StripCookies(h, "__Host-fhir-")
		if got := h.Values("Cookie"); len(got) != len(tt.want) || len(got) == 1 && got[0] != tt.want[0] {
			t.Errorf("%q leaves %q, want %q", tt.cookies, got, tt.want)
		}
	}
}
