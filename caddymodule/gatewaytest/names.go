package gatewaytest

import "strings"

// Names of users and clients: BadNames cannot be a sub anywhere, ReservedNames only as others' tokens have them.
var (
	BadNames = map[string]string{
		"space behind": "wendy ", "space before": " wendy", "tab": "wen\tdy", "NUL": "wendy\x00", "CR LF": "wendy\r\nX-Admin: 1", "LF": "wendy\n",
		"DEL": "wendy\x7f", "300 bytes": strings.Repeat("x", 300), "not ASCII": "wéndy", "no-break space": "wendy\u00a0",
	}
	ReservedNames = map[string]string{
		"a client that registered itself": "registered-0123456789abcdef0123456789abcdef", "a person of an identity provider": strings.Repeat("A", 43),
	}
	GoodNames = map[string]string{"plain": "wendy", "with a space": "Wendy Adams", "an address": "wendy@hospital.example", "255 bytes": strings.Repeat("x", 255)}
)
