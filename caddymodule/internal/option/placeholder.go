package option

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2"
)

// ResolveSecret replaces placeholders and removes the trailing newline of a file's content. An unknown or empty placeholder is
// an error: otherwise, a client with a secret that was not mounted would become public.
func ResolveSecret(option, secret string) (string, error) {
	resolved, err := replacePlaceholders(secret)
	if err != nil {
		return "", fmt.Errorf("%s: %w", option, err)
	}
	return resolved, nil
}

// ResolveSecrets resolves several secrets in place. The keys are the names of the options.
func ResolveSecrets(secrets map[string]*string) (err error) {
	for _, option := range slices.Sorted(maps.Keys(secrets)) {
		if *secrets[option], err = ResolveSecret(option, *secrets[option]); err != nil {
			return err
		}
	}
	return nil
}

func replacePlaceholders(secret string) (string, error) {
	if err := CheckPlaceholders(secret); err != nil {
		return "", err
	}
	resolved, err := caddy.NewReplacer().ReplaceOrErr(secret, true, true)
	resolved = strings.TrimRight(resolved, "\r\n")
	if err == nil && (secret == "" || resolved != "") {
		return resolved, nil
	}
	return "", cmp.Or(findEmptySource(secret), err, errors.New("is empty"))
}

var sourcePlaceholder = regexp.MustCompile(`\{(env|file)\.([^{}]+)\}`)

// findEmptySource returns why the first empty placeholder is empty, which Caddy does not report, or nil if this is unknown.
func findEmptySource(text string) error {
	for _, match := range sourcePlaceholder.FindAllStringSubmatch(text, -1) {
		check := checkEnvironment
		if match[1] == "file" {
			check = checkFile
		}
		if err := check(match[2]); err != nil {
			return fmt.Errorf("%s: %w", match[0], err)
		}
	}
	return nil
}

func checkEnvironment(name string) error {
	switch value, set := os.LookupEnv(name); {
	case !set:
		return errors.New("the environment variable is not set")
	case value == "":
		return errors.New("the environment variable is empty")
	}
	return nil
}

func checkFile(name string) error {
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	defer file.Close()
	beginning, err := io.ReadAll(io.LimitReader(file, 4096))
	switch {
	case err != nil:
		return err
	case strings.TrimRight(string(beginning), "\r\n") == "":
		return errors.New("the file is empty")
	}
	return nil
}

// IfLiteral returns a check that ignores words with placeholders, because their values are unknown before Provision.
func IfLiteral(check func(string) error) func(string) error {
	return func(w string) error {
		if strings.Contains(w, "{") {
			return CheckPlaceholders(w)
		}
		return check(w)
	}
}

var unclosedPlaceholder = regexp.MustCompile(`\{(env|file)\.[^}]*$`)

// CheckPlaceholders returns an error if a placeholder has no closing brace, because its text would become the secret.
func CheckPlaceholders(w string) error {
	if unclosed := unclosedPlaceholder.FindString(w); unclosed != "" {
		return fmt.Errorf("placeholder %s has no closing brace", unclosed)
	}
	return nil
}
