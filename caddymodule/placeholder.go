package caddymodule

import (
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"

	"github.com/caddyserver/caddy/v2"
)

// resolveSecret replaces placeholders. An unknown or empty one is an error: a secret that was not mounted must not
// become the empty one, and make its client public. Line ends at its end, as files have them, are cut off.
func resolveSecret(option, secret string) (string, error) {
	err := checkPlaceholders(secret)
	if err != nil {
		return "", fmt.Errorf("%s: %w", option, err)
	}
	resolved, err := caddy.NewReplacer().ReplaceOrErr(secret, true, true)
	resolved = strings.TrimRight(resolved, "\r\n")
	if err == nil && secret != "" && resolved == "" {
		err = errors.New("is empty")
	}
	if why := whyEmpty(secret); err != nil && why != nil {
		err = why
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w", option, err)
	}
	return resolved, nil
}

var placeholder = regexp.MustCompile(`\{(env|file)\.([^{}]+)\}`)

// whyEmpty explains why the first empty placeholder is empty, which Caddy does not; nil if there is none of a known
// kind.
func whyEmpty(text string) error {
	for _, match := range placeholder.FindAllStringSubmatch(text, -1) {
		check := checkSet
		if match[1] == "file" {
			check = checkHolds
		}
		if err := check(match[2]); err != nil {
			return fmt.Errorf("%s: %w", match[0], err)
		}
	}
	return nil
}

func checkSet(name string) error {
	if value, set := os.LookupEnv(name); !set {
		return errors.New("the environment variable is not set")
	} else if value == "" {
		return errors.New("the environment variable is empty")
	}
	return nil
}

func checkHolds(name string) error {
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

// literal applies a check to words without placeholders. The value of a placeholder is not known before Provision.
func literal(check func(string) error) func(string) error {
	return func(w string) error {
		if strings.Contains(w, "{") {
			return checkPlaceholders(w)
		}
		return check(w)
	}
}

var openPlaceholder = regexp.MustCompile(`\{(env|file)\.[^}]*$`)

// checkPlaceholders refuses one without its closing brace: its text would become the secret.
func checkPlaceholders(w string) error {
	if open := openPlaceholder.FindString(w); open != "" {
		return fmt.Errorf("%s has no closing brace", open)
	}
	return nil
}
