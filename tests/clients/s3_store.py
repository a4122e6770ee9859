"""Prepares the S3 store of PyPI moto: s3_store.py URL. Prints its keys as shell variables.

Makes a bucket "images" and a user, then tells the store to check the signature of every request from now on.
"""
import json
import sys
import urllib.request

import boto3

REGION = "eu-north-1"


def main():
    url = sys.argv[1]
    anyone = {"endpoint_url": url, "aws_access_key_id": "any", "aws_secret_access_key": "any", "region_name": REGION}
    users = boto3.client("iam", **anyone)
    users.create_user(UserName="flux2")
    key = users.create_access_key(UserName="flux2")["AccessKey"]
    allowed = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}]}
    users.put_user_policy(UserName="flux2", PolicyName="images", PolicyDocument=json.dumps(allowed))
    boto3.client("s3", **anyone).create_bucket(Bucket="images", CreateBucketConfiguration={"LocationConstraint": REGION})
    checks = urllib.request.Request(url + "/moto-api/reset-auth", data=b"0", headers={"Content-Type": "text/plain"}, method="POST")
    urllib.request.urlopen(checks).read()
    print(f"export AWS_ACCESS_KEY_ID='{key['AccessKeyId']}' AWS_SECRET_ACCESS_KEY='{key['SecretAccessKey']}'")
    print(f"export AWS_REGION={REGION} AWS_DEFAULT_REGION={REGION} AWS_ENDPOINT_URL='{url}'")


if __name__ == "__main__":
    main()
