package option

import (
	"strings"
	"testing"
)

func TestResolveConnection(t *testing.T) {
	t.Setenv("SECRET", `a@b/c:d?e#f'g\h%i j`)
	t.Setenv("HOST", "db:1")
	t.Setenv("URL", "redis://:a%40b@db:1")
	const inURL = `a%40b%2Fc%3Ad%3Fe%23f%27g%5Ch%25i%20j`
	for text, want := range map[string]string{
		"": "", "{env.URL}": "redis://:a%40b@db:1", "redis://db": "redis://db",
		"redis://:{env.SECRET}@{env.HOST}/1":                  "redis://:" + inURL + "@db:1/1",
		"redis://{env.SECRET}:{env.SECRET}@db?x={env.SECRET}": "redis://" + inURL + ":" + inURL + "@db?x=" + inURL,
		"host={env.HOST} password='{env.SECRET}' user=x":      `host=db:1 password='a@b/c:d?e#f\'g\\h%i\ j' user=x`,
		"password={env.SECRET} user=x":                        `password=a@b/c:d?e#f\'g\\h%i\ j user=x`,
	} {
		if got, err := ResolveConnection("dsn", text); err != nil || got != want {
			t.Errorf("%s: %s, %v, want %s", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"redis://:{env.NONESUCH}@db": "dsn: {env.NONESUCH}: the environment variable is not set", "redis://:{env.SECRET@db": "no closing brace",
	} {
		if _, err := ResolveConnection("dsn", text); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "a@b") {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}
