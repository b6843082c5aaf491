package outcome

import "strings"

// Canonical joins a url and a version, if any, to url|version (R4 §2.24.0.6).
func Canonical(url, version string) string {
	if version == "" {
		return url
	}
	return url + "|" + version
}

// Split splits url|version.
func Split(s string) (url, version string) {
	url, version, _ = strings.Cut(s, "|")
	return url, version
}
