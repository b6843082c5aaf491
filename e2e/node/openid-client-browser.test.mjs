// What comes by way of the browser, and what is told behind its back, as npm
// openid-client and npm jose see the authorization server.
//
//	LOGOUT_PORT    where the client browser-app is told that a session ended
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { createServer } from 'node:http';
import { before, test } from 'node:test';

import { createRemoteJWKSet, jwtVerify } from 'jose';
import * as client from 'openid-client';

import { Browser, expandGender, issuer, landed, post, redirectURI, signIn } from './person.mjs';

let app, keys;

before(async () => {
	app = await client.discovery(new URL(issuer), 'browser-app', undefined, client.None());
	keys = createRemoteJWKSet(new URL(app.serverMetadata().jwks_uri));
});

test('discovery tells what these clients may use', () => {
	const server = app.serverMetadata();
	assert.deepEqual(server.response_types_supported, ['code', 'token', 'id_token', 'id_token token']);
	assert.deepEqual(server.response_modes_supported.toSorted(), ['form_post', 'fragment', 'query']);
	assert.ok(server.token_endpoint_auth_methods_supported.includes('private_key_jwt'));
	assert.equal(server.backchannel_logout_supported, true);
	assert.equal(server.backchannel_logout_session_supported, true);
	assert.equal(server.registration_endpoint, `${issuer}/oauth2/register`);
	assert.equal(server.pushed_authorization_request_endpoint, `${issuer}/oauth2/par`);
});

test('a code by form_post', async () => {
	const pkceCodeVerifier = client.randomPKCECodeVerifier();
	const expectedState = `"><script>${client.randomState()}`;
	const page = await new Browser().signIn(
		client.buildAuthorizationUrl(app, {
			redirect_uri: redirectURI,
			scope: 'openid',
			response_mode: 'form_post',
			code_challenge: await client.calculatePKCECodeChallenge(pkceCodeVerifier),
			code_challenge_method: 'S256',
			state: expectedState,
		}),
	);
	const tokens = await client.authorizationCodeGrant(app, await post(page), { pkceCodeVerifier, expectedState });
	assert.equal(tokens.claims().sub, 'alice');
});

for (const response_mode of [undefined, 'fragment', 'form_post']) {
	test(`an ID token alone, by ${response_mode ?? 'the fragment, as usual'}`, async () => {
		const own = await client.discovery(new URL(issuer), 'browser-app', undefined, client.None());
		client.useIdTokenResponseType(own);
		const nonce = client.randomNonce();
		const expectedState = client.randomState();
		const parameters = { redirect_uri: redirectURI, scope: 'openid email', nonce, state: expectedState };
		const answer = await new Browser().signIn(
			client.buildAuthorizationUrl(own, response_mode ? { ...parameters, response_mode } : parameters),
		);
		const came = response_mode === 'form_post' ? await post(answer) : landed(answer);
		const claims = await client.implicitAuthentication(own, came, nonce, { expectedState });
		assert.equal(claims.email, 'alice@example.org', 'without an access token the claims are in the ID token');
	});
}

test('id_token token: bound to each other', async () => {
	const nonce = client.randomNonce();
	const end = await signIn(
		client.buildAuthorizationUrl(app, {
			redirect_uri: redirectURI,
			scope: 'openid user/*.rs',
			response_type: 'id_token token',
			nonce,
			state: 's',
		}),
	);
	const given = new URLSearchParams(end.hash.slice(1));
	const { payload } = await jwtVerify(given.get('id_token'), keys, { issuer, audience: 'browser-app' });
	const half = createHash('sha256').update(given.get('access_token')).digest().subarray(0, 16);
	assert.equal(payload.at_hash, half.toString('base64url'));
	assert.equal(payload.nonce, nonce);
	assert.equal(given.has('refresh_token'), false);
	assert.equal((await client.fetchProtectedResource(app, given.get('access_token'), expandGender, 'GET')).status, 200);
});

test('an app is told behind the browser that a session ended', async (t) => {
	const told = new Promise((resolve) => {
		const server = createServer(async (request, response) => {
			const chunks = [];
			for await (const chunk of request) {
				chunks.push(chunk);
			}
			response.end();
			resolve({ type: request.headers['content-type'], body: new URLSearchParams(Buffer.concat(chunks).toString()) });
		});
		server.listen(Number(process.env.LOGOUT_PORT));
		t.after(() => server.close());
	});
	const browser = new Browser();
	const pkceCodeVerifier = client.randomPKCECodeVerifier();
	const end = await signIn(
		client.buildAuthorizationUrl(app, {
			redirect_uri: redirectURI,
			scope: 'openid',
			code_challenge: await client.calculatePKCECodeChallenge(pkceCodeVerifier),
			code_challenge_method: 'S256',
		}),
		browser,
	);
	const tokens = await client.authorizationCodeGrant(app, end, { pkceCodeVerifier });
	const signedOut = await browser.fetch(
		client.buildEndSessionUrl(app, { id_token_hint: tokens.id_token, post_logout_redirect_uri: redirectURI, state: 'out' }),
	);
	assert.equal(landed(signedOut).href, `${redirectURI}?state=out`);

	const { type, body } = await told;
	assert.equal(type, 'application/x-www-form-urlencoded');
	const { payload } = await jwtVerify(body.get('logout_token'), keys, {
		issuer,
		audience: 'browser-app',
		typ: 'logout+jwt',
		requiredClaims: ['iat', 'exp', 'jti', 'events'],
	});
	assert.deepEqual(payload.events, { 'http://schemas.openid.net/event/backchannel-logout': {} });
	assert.equal(payload.sub, 'alice');
	assert.equal(payload.sid, tokens.claims().sid);
	assert.equal(payload.nonce, undefined);
});
