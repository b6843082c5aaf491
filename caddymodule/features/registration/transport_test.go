package registration

import "testing"

// Registered addresses in private networks are requested only where the issuer is on this computer.
func TestTransport(t *testing.T) {
	t.Parallel()
	for issuer, private := range map[string]bool{
		"https://localhost:8443": true, "https://127.0.0.1:8443": true,
		"https://fhir.example.org": false, "https://localhost.example.org": false, "https://10.0.0.1": false,
	} {
		if got := transport(issuer) != nil; got != private {
			t.Errorf("%s: requests go to private addresses: %t", issuer, got)
		}
	}
}
