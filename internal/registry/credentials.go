package registry

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
)

// login is what a registry knows a client by.
type login struct {
	user, password string
	refresh        string // a token for tokens
}

// challengeParameter is one of a challenge: realm="https://auth.example.com/token".
var challengeParameter = regexp.MustCompile(`([A-Za-z_]+)="([^"]*)"`)

// authorize answers what a registry wants of a client: its password, or a token of the server that it names. Source:
// the token authentication of github.com/distribution/distribution, 3.0.
func (s *session) authorize(ctx context.Context, challenges []string) (string, error) {
	known, err := s.login()
	if err != nil {
		return "", err
	}
	for _, challenge := range challenges {
		scheme, rest, _ := strings.Cut(challenge, " ")
		switch strings.ToLower(scheme) {
		case "basic":
			if known.user == "" {
				return "", fmt.Errorf("registry %s wants a password: %s", s.image.Registry, s.wayOut())
			}
			return basic(known), nil
		case "bearer":
			parameters := map[string]string{}
			for _, p := range challengeParameter.FindAllStringSubmatch(rest, -1) {
				parameters[strings.ToLower(p[1])] = p[2]
			}
			token, err := s.token(ctx, parameters["realm"], parameters["service"], known)
			if err != nil {
				return "", fmt.Errorf("asking for a token of registry %s: %w", s.image.Registry, err)
			}
			return "Bearer " + token, nil
		}
	}
	return "", fmt.Errorf("registry %s lets no one in, and says neither Basic nor Bearer", s.image.Registry)
}

// wayOut says what is missing without a login.
func (s *session) wayOut() string {
	if s.Credentials == "" {
		return "name a file with it, as docker login writes one"
	}
	return s.Credentials + " has no entry for it"
}

func basic(l login) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(l.user+":"+l.password))
}

// token asks the server of tokens for one that reads the repository.
func (s *session) token(ctx context.Context, realm, service string, known login) (string, error) {
	at, err := url.Parse(realm)
	if err != nil || at.Scheme != "https" || at.Host == "" || at.User != nil {
		return "", fmt.Errorf("realm %q: want a URL of https", realm)
	}
	query := at.Query()
	query.Set("scope", "repository:"+s.image.repository()+":pull")
	if service != "" {
		query.Set("service", service)
	}
	method, form := http.MethodGet, ""
	if known.refresh != "" {
		query.Set("grant_type", "refresh_token")
		query.Set("refresh_token", known.refresh)
		query.Set("client_id", "fusionctl")
		method, form, query = http.MethodPost, query.Encode(), nil
	}
	at.RawQuery = query.Encode()
	request, err := http.NewRequestWithContext(ctx, method, at.String(), strings.NewReader(form))
	if err != nil {
		return "", err
	}
	switch {
	case form != "":
		request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	case known.user != "":
		request.Header.Set("Authorization", basic(known))
	}
	// A password goes where the registry says, and no further.
	client := &http.Client{Transport: s.client.Transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	response, err := client.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	data, err := io.ReadAll(io.LimitReader(response.Body, limitTokenBytes))
	switch {
	case err != nil:
		return "", err
	case response.StatusCode != http.StatusOK && known == (login{}):
		return "", fmt.Errorf("%s: %s: %s", at.Host, response.Status, s.wayOut())
	case response.StatusCode != http.StatusOK:
		return "", fmt.Errorf("%s: %s", at.Host, response.Status)
	}
	var answer struct {
		Token       string `json:"token"`
		AccessToken string `json:"access_token"`
	}
	if json.Unmarshal(data, &answer) != nil || answer.Token+answer.AccessToken == "" {
		return "", fmt.Errorf("%s: its answer has no token", at.Host)
	}
	if answer.Token == "" {
		answer.Token = answer.AccessToken
	}
	return answer.Token, nil
}

// login reads the file of credentials; the zero value where there are none. Errors say nothing of what it holds.
func (s *session) login() (login, error) {
	if s.Credentials == "" {
		return login{}, nil
	}
	data, err := os.ReadFile(s.Credentials)
	if err != nil {
		return login{}, err
	}
	var file struct {
		Auths map[string]struct {
			Auth          string `json:"auth"`
			Username      string `json:"username"`
			Password      string `json:"password"`
			IdentityToken string `json:"identitytoken"`
		} `json:"auths"`
		CredsStore  string            `json:"credsStore"`
		CredHelpers map[string]string `json:"credHelpers"`
	}
	if err := json.Unmarshal(data, &file); err != nil {
		return login{}, errors.New(s.Credentials + ": is no JSON as docker's config.json is")
	}
	for _, name := range slices.Sorted(maps.Keys(file.Auths)) {
		a := file.Auths[name]
		if serverOf(name) != s.image.host() {
			continue
		}
		l := login{user: a.Username, password: a.Password, refresh: a.IdentityToken}
		if a.Auth != "" {
			text, err := base64.StdEncoding.DecodeString(a.Auth)
			user, password, ok := strings.Cut(string(text), ":")
			if err != nil || !ok {
				return login{}, fmt.Errorf("%s: the entry %q has no user and password in base64", s.Credentials, name)
			}
			l.user, l.password = user, strings.TrimRight(password, "\x00")
		}
		if l != (login{}) {
			return l, nil
		}
	}
	if file.CredsStore != "" || file.CredHelpers[s.image.Registry] != "" {
		return login{}, fmt.Errorf("%s: has no password of %s, but names a program that does, which is not run: want "+
			"it in auths", s.Credentials, s.image.Registry)
	}
	return login{}, nil
}

// serverOf is the server of an entry, which may be a URL.
func serverOf(name string) string {
	name = strings.TrimPrefix(strings.TrimPrefix(name, "https://"), "http://")
	name, _, _ = strings.Cut(name, "/")
	return Image{Registry: name}.host()
}
